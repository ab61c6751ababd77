//! The thread that reads, judges deadlines, kills, and replaces a dead broker.

use std::os::fd::AsRawFd;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Shared;
use super::launch::launch;
use super::state::{TOKEN_CONTROL, TOKEN_TIMER, TOKEN_WAKE, TOKEN_WORKER};
use crate::error::{Result, Stage};
use crate::jail::sys::{io, process};

/// Brokers that may die one after another before one has served a session.
const MOST_DEATHS: u32 = 5;

impl Shared {
    /// Somebody's operation is finished.
    pub(super) fn announce(&self, blocking: bool) {
        if !blocking {
            io::ring(&self.done_fd);
        } else if self.waiters.load(Ordering::SeqCst) > 0 {
            self.done.notify_all();
        }
    }

    /// Start another broker in place of a dead one.
    fn renew(&self, why: &str) -> Result<()> {
        let limits = {
            let mut state = self.lock();
            io::unwatch(&self.epoll, &state.control);
            io::hang_up(&state.control);
            state.lose_workers(&format!("the sandbox broker died: {why}"));
            state.stats.event("broker_died", "", None, why);
            state.limits.clone()
        };
        self.announce(limits.blocking);
        // Whatever is left of the old one goes first.
        drop(
            self.stub
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let launched = launch(&limits, &self.stop)?;
        io::watch(&self.epoll, &launched.control, TOKEN_CONTROL).stage("epoll")?;
        *self.stub.lock().unwrap_or_else(PoisonError::into_inner) = Some(launched.stub);
        let mut state = self.lock();
        state.control = launched.control;
        state.report = launched.report;
        for profile in 0..limits.profiles.len() {
            state.code.forget(profile);
        }
        state.broker_lost = None;
        state.hold_until = None;
        state.stats.broker_restarts += 1;
        state.stats.event("broker_restarted", "", None, why);
        state.assign();
        Ok(())
    }
}

/// The I/O thread.
pub(super) fn run(shared: &Shared) {
    let mut scratch = vec![0; 64 << 10];
    let (mut deaths, mut acquired) = (0, 0);
    while !shared.stop.load(Ordering::SeqCst) {
        let events = match io::wait_events(shared.epoll.as_raw_fd()) {
            Ok(events) => events,
            Err(error) => {
                shared.lock().fail(&format!("epoll: {error}"));
                Vec::new()
            }
        };
        let mut state = shared.lock();
        for (token, readable, writable) in events {
            match token {
                TOKEN_WAKE => io::hush(&shared.wake),
                TOKEN_TIMER => state.timer_rang(),
                TOKEN_CONTROL => state.control_ready(&mut scratch),
                _ => {
                    let id = ((token - TOKEN_WORKER) / 2) as u32;
                    if token % 2 == 1 && (writable || readable) {
                        state.write_rest(id);
                    } else if readable {
                        state.read(id, &mut scratch);
                    }
                }
            }
        }
        let kills = std::mem::take(&mut state.to_kill);
        let finished = std::mem::take(&mut state.news);
        let (broken, lost) = (state.broken.is_some(), state.broker_lost.clone());
        let (blocking, served) = (state.limits.blocking, state.stats.acquired);
        drop(state);
        if finished {
            shared.announce(blocking);
        }
        for pidfd in kills {
            process::kill(&pidfd); // outside the lock: the victim may take the CPU from us
        }
        if let Some(why) = lost.filter(|_| !broken) {
            deaths = if served > acquired { 1 } else { deaths + 1 };
            acquired = served;
            if deaths > MOST_DEATHS {
                let text = format!("the sandbox broker died {deaths} times in a row: {why}");
                shared.lock().fail(&text);
            } else if let Err(fault) = shared.renew(&why) {
                // What is short may come free: the next round tries again, a few times.
                shared.lock().broker_lost = Some(fault.to_string());
                std::thread::sleep(Duration::from_millis(20 << deaths.min(8)));
                io::ring(&shared.wake);
            }
        }
        if shared.lock().broken.is_some() {
            break;
        }
    }
    let mut state = shared.lock();
    state.shut("sandbox pool was closed while the call was in flight");
    let blocking = state.limits.blocking;
    for pidfd in std::mem::take(&mut state.to_kill) {
        process::kill(&pidfd);
    }
    drop(state);
    shared.announce(blocking);
}
