//! What installing the filters costs, for readers.

use std::io::Error;
use std::time::Instant;

use _sandbox_rs::policy::filters;

use super::kernel::{Answers, COMBINATIONS};

/// Prints what installing costs; asserts nothing about time.
#[test]
fn cost_of_installing_is_printed() {
    for tiers in COMBINATIONS {
        let own: Vec<_> = tiers
            .iter()
            .filter(|&&t| t != "fork")
            .map(|&t| t.to_owned())
            .collect();
        let filters = filters(&own).expect("the filters compile");
        let mut lowest = [i64::MAX; 2];
        for _ in 0..40 {
            let shared = Answers::new(2);
            let status = in_worker_unlocked(|| {
                let begun = Instant::now();
                let is_first = seccompiler::apply_filter(&filters.allow).is_ok();
                let between = Instant::now();
                let fork = tiers.contains(&"fork");
                let seal = if fork {
                    &filters.seal_fork
                } else {
                    &filters.seal
                };
                let is_second = seccompiler::apply_filter(seal).is_ok();
                let nanos = |from: Instant, to: Instant| (to - from).as_nanos() as i64;
                shared.set(0, nanos(begun, between));
                shared.set(1, nanos(between, Instant::now()));
                is_first && is_second
            });
            assert_eq!(status, 0);
            lowest = [0, 1].map(|place: usize| lowest[place].min(shared.get(place)));
        }
        let [allow, seal] = lowest.map(|nanos| nanos as f64 / 1000.0);
        eprintln!("{tiers:?}: allow {allow:.1} us, seal {seal:.1} us (fastest of 40)");
    }
}

fn in_worker_unlocked(body: impl Fn() -> bool) -> i32 {
    // SAFETY: as in `in_worker`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", Error::last_os_error());
    if pid == 0 {
        let code = i32::from(!body());
        // SAFETY: takes a number and does not return.
        unsafe { libc::_exit(code) }
    }
    let mut status = 0;
    // SAFETY: `status` has room for the integer the call writes.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}
