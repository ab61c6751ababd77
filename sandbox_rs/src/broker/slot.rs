//! One profile's templates: the one that serves, the one that will, those that are on their way out.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::jail::sys::{io, process};
use crate::limits::{Limits, Profile};

/// Templates that may die one after another before one has served a worker.
const MOST_DEATHS: u32 = 5;
/// Longest pause before a dead template is replaced.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A running template.
pub(super) struct Template {
    pub(super) control: OwnedFd,
    pub(super) pid: i32,
    pub(super) ready: bool,
    /// Asked for and not yet answered: id and class.
    pub(super) pending: VecDeque<(u32, u8)>,
    served: u64,
    born: Instant,
    /// When it was started, or was last asked or has answered while it owed something.
    heard: Instant,
}

impl Template {
    /// Whether something is waited for: its start, or a worker.
    fn owes(&self) -> bool {
        !self.ready || !self.pending.is_empty()
    }
}

/// A profile and its templates.
pub(super) struct Slot {
    pub(super) profile: Profile,
    pub(super) current: Option<Template>,
    pub(super) next: Option<Template>,
    pub(super) leaving: Vec<Template>,
    /// Asked for while no template was ready.
    pub(super) queue: VecDeque<(u32, u8)>,
    pub(super) start_at: Option<Instant>,
    /// A successor died: none is started before.
    no_successor_until: Option<Instant>,
    deaths: u32,
    /// Longest start, and longest silence of a template that owes workers.
    patience: Duration,
}

impl Slot {
    pub(super) fn new(profile: Profile, patience: Duration) -> Self {
        Self {
            profile,
            current: None,
            next: None,
            leaving: Vec::new(),
            queue: VecDeque::new(),
            start_at: None,
            no_successor_until: None,
            deaths: 0,
            patience,
        }
    }

    /// Start a template; it says `H` when it is ready.
    pub(super) fn spawn(
        &self,
        index: usize,
        limits: &Limits,
        text: &str,
        flags: &str,
    ) -> Result<Template, String> {
        let (control, other) = io::socket_pair(true).map_err(|e| e.to_string())?;
        let python = &self.profile.python;
        let pid = crate::broker::command(python, &limits.module_path, "_template_main", other)
            .spawn()
            .map(|child| child.id() as i32) // collected by the broker with all other children
            .map_err(|e| {
                format!(
                    "profile {}: sandbox.python={python:?}: {e}; set the path of a Python of at \
                     least 3.11",
                    self.profile.name
                )
            })?;
        let message = format!("{index} {flags}\n{text}");
        // One that has left already is told from its silence, with how it left.
        let _ = io::send_with(control.as_raw_fd(), message.as_bytes(), &[], true);
        Ok(Template {
            control,
            pid,
            ready: false,
            pending: VecDeque::new(),
            served: 0,
            born: Instant::now(),
            heard: Instant::now(),
        })
    }

    /// When templates that are not ready, or that owe a worker and are silent, will have failed.
    pub(super) fn overdue_at(&self) -> Option<Instant> {
        let owing = self.all().filter(|template| template.owes());
        owing.map(|template| template.heard + self.patience).min()
    }

    /// End templates that take too long; their deaths are then seen like any other.
    pub(super) fn end_overdue(&self, now: Instant) {
        let overdue = |t: &&Template| t.owes() && t.heard + self.patience <= now;
        for template in self.all().filter(overdue) {
            if let Ok(pidfd) = process::pidfd_open(template.pid) {
                process::kill(&pidfd);
            }
        }
    }

    /// What a template means that left before the pool had started: the thing, and the next move.
    pub(super) fn never_ready(&self, why: &str) -> String {
        let Profile {
            name,
            python,
            imports,
            ..
        } = &self.profile;
        let is_late = |t: &Template| t.heard + self.patience <= Instant::now();
        if self.current.as_ref().is_some_and(is_late) {
            let seconds = self.patience.as_secs_f64();
            return format!(
                "profile {name}: the template was not ready within {seconds} s; raise start_s, or \
                 look at what its packages {imports:?} do when they are imported"
            );
        }
        format!(
            "profile {name}: the template left before it was ready ({why}); check its interpreter, \
             sandbox.python={python:?}, and its packages {imports:?}"
        )
    }

    /// All templates of the slot.
    pub(super) fn all(&self) -> impl Iterator<Item = &Template> {
        self.current.iter().chain(&self.next).chain(&self.leaving)
    }

    /// The template behind a control socket.
    pub(super) fn by_control(&mut self, fd: i32) -> Option<&mut Template> {
        self.current
            .iter_mut()
            .chain(&mut self.next)
            .chain(&mut self.leaving)
            .find(|template| template.control.as_raw_fd() == fd)
    }

    /// Ask the serving template for what is queued. A socket that fails is a death, seen elsewhere.
    pub(super) fn pass_on(&mut self) {
        let Some(template) = self.current.as_mut().filter(|t| t.ready) else {
            return;
        };
        while let Some(&(id, class)) = self.queue.front() {
            let mut packet = vec![b'S', class];
            packet.extend_from_slice(&id.to_le_bytes());
            if io::send_with(template.control.as_raw_fd(), &packet, &[], false).is_err() {
                break; // full: its answers make room, and each of them calls this again
            }
            self.queue.pop_front();
            if template.pending.is_empty() {
                template.heard = Instant::now();
            }
            template.pending.push_back((id, class));
        }
    }

    /// An answer came for a worker.
    pub(super) fn answered(&mut self, fd: i32, id: u32, served: bool) {
        if served {
            self.deaths = 0;
        }
        if let Some(template) = self.by_control(fd) {
            template.pending.retain(|&(pending, _)| pending != id);
            template.heard = Instant::now();
            template.served += u64::from(served);
        }
        // A template that leaves has answered everything: closing its socket lets it go.
        self.leaving.retain(|template| !template.pending.is_empty());
    }

    /// Whether the serving template is due to be replaced.
    pub(super) fn is_old(&self, now: Instant) -> bool {
        let (count, seconds) = (self.profile.rotate_after, self.profile.rotate_after_s);
        self.next.is_none()
            && self.no_successor_until.is_none_or(|until| until <= now)
            && self.current.as_ref().is_some_and(|template| {
                template.ready
                    && (count > 0 && template.served >= count
                        || seconds > 0.0 && (now - template.born).as_secs_f64() >= seconds)
            })
    }

    /// When the serving template gets too old, if it can.
    pub(super) fn old_at(&self) -> Option<Instant> {
        let seconds = self.profile.rotate_after_s;
        let template = self.current.as_ref()?;
        let at = template.born + Duration::from_secs_f64(seconds);
        let at = self.no_successor_until.map_or(at, |until| at.max(until));
        (seconds > 0.0 && template.ready && self.next.is_none()).then_some(at)
    }

    /// A template died before it could take over: the old one serves on, the next try waits.
    ///
    /// # Errors
    /// Successors have died too often.
    pub(super) fn successor_died(&mut self) -> Result<(), String> {
        self.next = None;
        self.deaths += 1;
        if self.deaths > MOST_DEATHS {
            let name = &self.profile.name;
            return Err(format!("profile {name}: no new template could be started"));
        }
        self.no_successor_until = Some(Instant::now() + LONGEST_PAUSE);
        Ok(())
    }

    /// The next template is ready: it serves, the old one leaves once it has answered.
    pub(super) fn promote(&mut self) {
        if let Some(old) = self.current.take()
            && !old.pending.is_empty()
        {
            self.leaving.push(old);
        }
        self.current = self.next.take();
    }

    /// The serving template died: what it owed is asked for again, after a pause that grows.
    ///
    /// # Errors
    /// It has died too often without serving anybody.
    pub(super) fn died(&mut self, why: &str) -> Result<(), String> {
        if let Some(dead) = self.current.take() {
            for owed in dead.pending.into_iter().rev() {
                self.queue.push_front(owed);
            }
        }
        self.deaths += 1;
        if self.deaths > MOST_DEATHS {
            return Err(format!(
                "profile {}: the template died {} times without serving a worker, last: {why}",
                self.profile.name, self.deaths
            ));
        }
        let pause = Duration::from_millis(20 << self.deaths.min(8)).min(LONGEST_PAUSE);
        self.start_at = Some(Instant::now() + pause);
        Ok(())
    }
}
