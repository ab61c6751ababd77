//! The installed filters, tried call by call: each batch in a forked child of its own, which makes
//! raw calls only, because other tests' threads may hold locks at the time of the fork.
#![cfg(target_arch = "x86_64")]

use std::collections::BTreeSet;
use std::io::Error;

use _sandbox_rs::policy::{Arch, Filters, filters};

use super::spec::{Arguments, ENOSYS, EPERM, NONSENSE, Spec};

type Call = (u32, Arguments);

/// Answers of a child, in memory it shares with us: each call's, and how many were made.
pub(super) struct Answers {
    memory: *mut i64,
    room: usize,
}

impl Answers {
    pub(super) fn new(num_calls: usize) -> Self {
        let room = num_calls + 1;
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        );
        // SAFETY: asks for fresh memory, which `drop` gives back.
        let memory =
            unsafe { libc::mmap(std::ptr::null_mut(), 8 * room, protection, flags, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        Self {
            memory: memory.cast(),
            room,
        }
    }

    pub(super) fn set(&self, place: usize, value: i64) {
        assert!(place < self.room);
        // SAFETY: `place` is inside the mapping; the parent reads after the child has ended.
        unsafe { self.memory.add(place).write_volatile(value) }
    }

    pub(super) fn get(&self, place: usize) -> i64 {
        assert!(place < self.room);
        // SAFETY: as above.
        unsafe { self.memory.add(place).read_volatile() }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody keeps a pointer into it.
        unsafe { libc::munmap(self.memory.cast(), 8 * self.room) };
    }
}

fn install(filters: &Filters, fork: bool) -> bool {
    let seal = if fork {
        &filters.seal_fork
    } else {
        &filters.seal
    };
    seccompiler::apply_filter(&filters.allow).is_ok() && seccompiler::apply_filter(seal).is_ok()
}

/// One call; its value, or minus the error number.
fn call((nr, a): &Call) -> i64 {
    // SAFETY: the tests choose arguments that the filter or the kernel refuses, or that harm only
    // the throw-away child that makes the call.
    let value = unsafe { libc::syscall(i64::from(*nr), a[0], a[1], a[2], a[3], a[4], a[5]) };
    if value == -1 {
        -i64::from(
            Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EINVAL),
        )
    } else {
        value
    }
}

/// Fork, lock the child like a worker, run `body` there; its wait status.
fn in_worker(tiers: &[&str], body: impl Fn()) -> i32 {
    let fork = tiers.contains(&"fork");
    let own: Vec<_> = tiers
        .iter()
        .filter(|&&t| t != "fork")
        .map(|&t| t.to_owned())
        .collect();
    let filters = filters(&own).expect("the filters compile");
    // SAFETY: the child makes raw calls and touches memory that exists; it never returns.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", Error::last_os_error());
    if pid == 0 {
        // SAFETY: takes numbers; a child that hangs is ended by the alarm.
        unsafe { libc::alarm(60) };
        let code = if install(&filters, fork) {
            body();
            0
        } else {
            71
        };
        // SAFETY: takes a number and does not return.
        unsafe { libc::_exit(code) }
    }
    let mut status = 0;
    // SAFETY: `status` has room for the integer the call writes.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

/// Answers of many calls that do not end the worker.
fn answers(tiers: &[&str], calls: &[Call]) -> Vec<i64> {
    let shared = Answers::new(calls.len());
    let status = in_worker(tiers, || {
        for (place, one) in calls.iter().enumerate() {
            shared.set(place + 1, call(one));
            shared.set(0, place as i64 + 1);
        }
    });
    let made = shared.get(0) as usize;
    assert_eq!(status, 0, "{tiers:?}: ended at {:x?}", calls.get(made));
    (1..=calls.len()).map(|place| shared.get(place)).collect()
}

pub(super) const COMBINATIONS: [&[&str]; 7] = [
    &[],
    &["files"],
    &["asyncio"],
    &["threads"],
    &["fork"],
    &["files", "asyncio", "threads"],
    &["files", "asyncio", "threads", "fork"],
];
/// Calls that end or split the process when they pass; they have tests of their own.
const ENDING: [&str; 4] = ["exit", "exit_group", "rt_sigreturn", "clone"];
/// Highest number in use today, and some more.
const NUM_CALLS: u32 = 520;
/// uretprobe and uprobe: the kernel lets them past every filter, because its own probes make them.
/// Made by anybody else they end the caller by SIGILL, or answer an error.
const UNFILTERED: [u32; 2] = [335, 336];

#[test]
fn every_refused_call_answers_its_error_number() {
    for tiers in COMBINATIONS {
        let spec = Spec::new(Arch::NATIVE, tiers);
        let mut calls: Vec<Call> = (0..NUM_CALLS).map(|nr| (nr, NONSENSE)).collect();
        calls.retain(|(nr, _)| !UNFILTERED.contains(nr));
        for entry in &spec.table.allow {
            calls.extend(spec.near(entry).into_iter().map(|args| (entry.nr, args)));
        }
        calls.retain(|(nr, args)| spec.refusal(*nr, args).is_some());
        assert!(calls.len() > 1000);
        for (one, answer) in calls.iter().zip(answers(tiers, &calls)) {
            let expected = spec.refusal(one.0, &one.1).map(|e| -i64::from(e));
            assert_eq!(Some(answer), expected, "{tiers:?}: {one:x?}");
        }
    }
}

#[test]
fn every_allowed_call_reaches_the_kernel() {
    for tiers in COMBINATIONS {
        let spec = Spec::new(Arch::NATIVE, tiers);
        let mut calls: Vec<(&str, Call)> = Vec::new();
        for entry in &spec.table.allow {
            if spec.tiers.contains(&entry.tier) && !ENDING.contains(&&entry.name[..]) {
                let variants = spec.each_meeting(entry);
                calls.extend(
                    variants
                        .into_iter()
                        .map(|args| (&entry.name[..], (entry.nr, args))),
                );
            }
        }
        let raw: Vec<Call> = calls.iter().map(|(_, one)| *one).collect();
        let names: BTreeSet<_> = calls.iter().map(|(name, _)| name).collect();
        assert!(names.len() >= 30, "{names:?}");
        for ((name, one), answer) in calls.iter().zip(answers(tiers, &raw)) {
            let is_refused = [EPERM, ENOSYS].iter().any(|e| answer == -i64::from(*e));
            assert!(!is_refused, "{tiers:?}: {name} {one:x?} gave {answer}");
        }
    }
}

#[test]
fn calls_that_end_a_worker_pass() {
    let numbers = Spec::new(Arch::NATIVE, &[]).table;
    let number = |name: &str| numbers.about(name)[0].nr;
    for name in ["exit", "exit_group"] {
        let one = (number(name), [7, 0, 0, 0, 0, 0]);
        let status = in_worker(&[], || _ = call(&one));
        assert!(
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7,
            "{name}"
        );
    }
}

#[test]
fn a_signal_goes_to_nobody_and_abort_still_ends_its_caller() {
    // Without a PID namespace siblings, template and broker may be processes of the same user.
    // SAFETY: takes nothing and cannot fail.
    let (own, parent) = unsafe { (libc::getpid() as u64, libc::getppid() as u64) };
    let tgkill = libc::SYS_tgkill as u32;
    let signals = [0, libc::SIGABRT, libc::SIGKILL].map(|signal| signal as u64);
    let calls = [own, parent, 1].map(|pid| signals.map(|s| (tgkill, [pid, pid, s, 0, 0, 0])));
    let answers = answers(&[], calls.as_flattened());
    assert!(
        answers.iter().all(|answer| *answer == -i64::from(EPERM)),
        "{answers:?}"
    );
    // SAFETY: the child has one thread and nobody else aborts, so no lock can be held.
    let status = in_worker(&[], || unsafe { libc::abort() });
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV);
}

extern "C" fn take_signal(_: libc::c_int) {}

#[test]
fn a_signal_handler_returns() {
    let status = in_worker(&[], || {
        let handler = take_signal as extern "C" fn(libc::c_int);
        // SAFETY: the handler does nothing; the trap goes on behind itself. After the handler the
        // kernel is asked to go back there, which would end in a crash if that were refused.
        unsafe {
            libc::signal(libc::SIGTRAP, handler as libc::sighandler_t);
            std::arch::asm!("int3");
        }
    });
    assert_eq!(status, 0);
}

#[test]
fn a_foreign_convention_ends_the_worker_by_sigsys() {
    for tiers in COMBINATIONS {
        for nr in [0u32, 39, 56, 257, 511, 1000].map(|nr| nr | 1 << 30) {
            let status = in_worker(tiers, || _ = call(&(nr, NONSENSE)));
            assert!(libc::WIFSIGNALED(status), "{nr:x} passed");
            assert_eq!(libc::WTERMSIG(status), libc::SIGSYS, "{nr:x}");
        }
        let status = in_worker(tiers, || {
            // SAFETY: getpid of the 32-bit convention takes nothing; registers are given back.
            unsafe { std::arch::asm!("int 0x80", inout("eax") 20 => _, options(nostack)) }
        });
        // A kernel without that convention answers with a segmentation fault.
        assert!(libc::WIFSIGNALED(status), "int 0x80 passed");
        let signal = libc::WTERMSIG(status);
        assert!([libc::SIGSYS, libc::SIGSEGV].contains(&signal), "{signal}");
    }
}

extern "C" fn end_thread(_: *mut libc::c_void) -> libc::c_int {
    // SAFETY: ends the calling thread alone; it shares the thread storage of its maker, so it may
    // do nothing else.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    0
}

/// Make a thread, or a process that ends at once; its id, or minus the error number.
fn clone(flags: i32) -> i64 {
    let mut stack = [0u128; 1024];
    // SAFETY: the stack outlives the child, which ends at once; `end_thread` is all it runs.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.len());
        libc::clone(end_thread, top.cast(), flags, std::ptr::null_mut())
    };
    if pid > 0 {
        // SAFETY: takes no pointer that is not null. Lets the child end before its stack goes.
        unsafe { libc::usleep(200_000) };
        return i64::from(pid);
    }
    -i64::from(
        Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EINVAL),
    )
}

#[test]
fn threads_and_forks_are_made_only_as_the_tier_says() {
    let thread = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD;
    let fork = libc::SIGCHLD;
    let tiers: [(&[&str], bool, bool); 4] = [
        (&[], false, false),
        (&["threads"], true, false),
        (&["fork"], false, true),
        (&["threads", "fork"], true, true),
    ];
    for (tiers, threads, forks) in tiers {
        let cases = [
            (thread, threads),
            (thread | libc::CLONE_SYSVSEM, threads),
            (fork, forks),
            (fork | libc::CLONE_NEWUSER, false),
            (fork | libc::CLONE_PARENT, false),
            (fork | libc::CLONE_VM, false),
            (fork | libc::CLONE_VM | libc::CLONE_VFORK, false),
            (fork | libc::CLONE_PTRACE, false),
            (fork | libc::CLONE_NEWNS, false),
            (libc::SIGKILL, false),
            (thread | libc::CLONE_NEWUSER, false),
            (thread | libc::CLONE_PTRACE, false),
            (thread | libc::SIGCHLD, false),
        ];
        let shared = Answers::new(cases.len());
        let status = in_worker(tiers, || {
            for (place, (flags, _)) in cases.iter().enumerate() {
                shared.set(place, clone(*flags));
            }
        });
        assert_eq!(status, 0);
        for (place, (flags, passes)) in cases.iter().enumerate() {
            let answer = shared.get(place);
            assert_eq!(
                answer > 0,
                *passes,
                "{tiers:?}: clone({flags:x}) gave {answer}"
            );
            assert!(
                answer > 0 || answer == -i64::from(EPERM),
                "{tiers:?} {flags:x}"
            );
        }
    }
}

#[test]
fn a_forkable_worker_can_lock_its_fork_further() {
    let shared = Answers::new(4);
    let own = filters(&[]).expect("the filters compile");
    let status = in_worker(&["fork"], || {
        let fork = (
            libc::SYS_clone as u32,
            [libc::SIGCHLD as u64, 0, 0, 0, 0, 0],
        );
        let pid = call(&fork);
        if pid == 0 {
            shared.set(0, i64::from(seccompiler::apply_filter(&own.seal).is_ok()));
            shared.set(1, call(&fork));
            shared.set(2, call(&(libc::SYS_seccomp as u32, [1, 0, 0, 0, 0, 0])));
            // SAFETY: takes a number and does not return.
            unsafe { libc::_exit(0) }
        }
        let mut ended = 0;
        // SAFETY: `ended` has room for the integer the call writes.
        shared.set(
            3,
            i64::from(unsafe { libc::waitpid(-1, &raw mut ended, 0) } as i64 == pid),
        );
    });
    assert_eq!(status, 0);
    let answers: Vec<_> = (0..4).map(|place| shared.get(place)).collect();
    assert_eq!(answers, [1, -1, -1, 1], "installed, fork, filter, waited");
}
