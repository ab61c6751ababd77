//! Cgroups for real: limits that kill, figures that are right, folders that go.
//!
//! Skips loudly where no memory cgroup can be made, unless `SPADE_DEMAND_CGROUPS` is set.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use _sandbox_rs::cgroup::{Cgroups, Place, PoolName, remove_pool, sweep};
use _sandbox_rs::jail::sys::trial::{Toucher, refused_forks};

const MIB: u64 = 1 << 20;

/// A pool of our own, or `None` with the reason printed.
fn pool() -> Option<(Cgroups, PoolName)> {
    // A thread stands for the stub: each test has its own, and it lives as long as the test.
    let thread = fs::read_link("/proc/thread-self").unwrap();
    let thread = thread.file_name().unwrap().to_str().unwrap();
    let name = PoolName::new(std::process::id(), thread.parse().unwrap()).unwrap();
    match Cgroups::open(&name) {
        Ok(pool) => Some((pool, name)),
        Err(error) => {
            let demanded = std::env::var_os("SPADE_DEMAND_CGROUPS").is_some();
            assert!(!demanded, "no cgroups: {error}");
            eprintln!("SKIPPED, no cgroup can be made here: {error}");
            None
        }
    }
}

/// Folders in which pools' folders lie.
fn bases() -> Vec<PathBuf> {
    let places = Place::all().unwrap().into_iter();
    let both = places.flat_map(|place| [Some(place.memory), place.pids]);
    both.flatten().collect()
}

/// Folders of a pool that are still there.
fn left_of(name: &PoolName) -> Vec<PathBuf> {
    let folders = bases().into_iter().map(|base| base.join(name.to_string()));
    folders.filter(|folder| folder.exists()).collect()
}

/// A child that does nothing, with no hold on our output, for a minute at most.
fn sleeper() -> Child {
    let mut command = Command::new("sleep");
    command
        .arg("60")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn three_times_the_limit_is_killed_and_reported() {
    let Some((mut pool, _)) = pool() else { return };
    let cell = pool.take(16 * MIB, 4).unwrap();
    let child = Toucher::start(48 << 20).unwrap();
    pool.attach(&cell, child.pid).unwrap();
    assert!(!child.touch().unwrap());
    assert_eq!(child.end().unwrap(), -libc::SIGKILL);
    let usage = pool.ended(cell);
    assert_eq!(usage.oom_kills, Some(1));
    let peak = usage.peak_bytes.unwrap();
    assert!(peak > 15 * MIB && peak <= 16 * MIB, "{peak}");
    pool.close().unwrap();
}

#[test]
fn the_peak_is_right_within_a_tenth() {
    let Some((mut pool, _)) = pool() else { return };
    let cell = pool.take(256 * MIB, 4).unwrap();
    let child = Toucher::start(64 << 20).unwrap();
    pool.attach(&cell, child.pid).unwrap();
    assert!(child.touch().unwrap());
    let live = pool.usage(&cell);
    assert_eq!(child.end().unwrap(), 0);
    let usage = pool.ended(cell);
    for peak in [live.peak_bytes.unwrap(), usage.peak_bytes.unwrap()] {
        let off = peak.abs_diff(64 * MIB);
        assert!(off * 10 < 64 * MIB, "{peak} for 64 MiB");
    }
    assert_eq!(usage.oom_kills, Some(0));
    pool.close().unwrap();
}

#[test]
fn a_used_cell_starts_at_zero_with_its_new_limit() {
    let Some((mut pool, _)) = pool() else { return };
    let cell = pool.take(16 * MIB, 4).unwrap();
    let path = cell.path().to_path_buf();
    let child = Toucher::start(48 << 20).unwrap();
    pool.attach(&cell, child.pid).unwrap();
    assert!(!child.touch().unwrap());
    child.end().unwrap();
    pool.ended(cell);
    // Up and down again: the two limits of version 1 must be set in the right order.
    for (limit, touched, survives) in [(64u64, 32usize, true), (8, 4, true), (8, 24, false)] {
        let cell = pool.take(limit * MIB, 4).unwrap();
        let fresh = pool.usage(&cell);
        assert_eq!(fresh.oom_kills, Some(0));
        assert!(fresh.peak_bytes.unwrap() < MIB + MIB / 2, "{fresh:?}");
        let child = Toucher::start(touched << 20).unwrap();
        pool.attach(&cell, child.pid).unwrap();
        assert_eq!(child.touch().unwrap(), survives, "{touched} of {limit} MiB");
        child.end().unwrap();
        let usage = pool.ended(cell);
        assert_eq!(usage.oom_kills, Some(u64::from(!survives)));
    }
    let cell = pool.take(8 * MIB, 4).unwrap();
    assert_eq!(cell.path(), path, "pooled, not made anew");
    pool.close().unwrap();
}

#[test]
fn a_cell_that_is_not_empty_is_not_used_again() {
    let Some((mut pool, _)) = pool() else { return };
    let cell = pool.take(64 * MIB, 4).unwrap();
    let path = cell.path().to_path_buf();
    let mut child = sleeper();
    pool.attach(&cell, child.id() as i32).unwrap();
    pool.ended(cell);
    let next = pool.take(64 * MIB, 4).unwrap();
    assert_ne!(next.path(), path);
    // Closing kills what is inside rather than leaving the folder.
    pool.close().unwrap();
    child.wait().unwrap();
    assert!(!path.exists());
}

#[test]
fn forks_beyond_the_limit_are_refused_and_counted() {
    let Some((mut pool, _)) = pool() else { return };
    let cell = pool.take(64 * MIB, 3).unwrap();
    let refused = refused_forks(5, |pid| pool.attach(&cell, pid)).unwrap();
    let usage = pool.ended(cell);
    let Some(hits) = usage.pids_hits else {
        eprintln!("SKIPPED, no pids controller here");
        return pool.close().unwrap();
    };
    assert_eq!((refused, hits), (3, 3), "a parent and two of five children");
    let fresh = pool.take(64 * MIB, 3).unwrap();
    assert_eq!(pool.usage(&fresh).pids_hits, Some(0));
    pool.close().unwrap();
}

#[test]
fn a_process_that_has_ended_is_named_by_its_errno() {
    let Some((mut pool, _)) = pool() else { return };
    let cell = pool.take(64 * MIB, 4).unwrap();
    let error = pool.attach(&cell, i32::MAX).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    pool.close().unwrap();
}

#[test]
fn after_a_broker_killed_with_64_workers_nothing_is_left() {
    let Some((mut pool, name)) = pool() else {
        return;
    };
    let mut children: Vec<_> = (0..64).map(|_| sleeper()).collect();
    for child in &children {
        let cell = pool.take(64 * MIB, 4).unwrap();
        pool.attach(&cell, child.id() as i32).unwrap();
        std::mem::forget(cell);
    }
    assert!(!left_of(&name).is_empty());
    std::mem::forget(pool); // nobody closes it
    let begin = Instant::now();
    for child in &mut children {
        let _ = child.kill();
    }
    remove_pool(&name, Duration::from_secs(20)).unwrap();
    eprintln!("64 cells removed in {:?}", begin.elapsed());
    assert_eq!(left_of(&name), Vec::<PathBuf>::new());
    // A second removal, and that of a pool that never was, are no errors.
    remove_pool(&name, Duration::ZERO).unwrap();
    for mut child in children {
        child.wait().unwrap();
    }
}

#[test]
fn removal_ends_what_is_still_inside() {
    let Some((mut pool, name)) = pool() else {
        return;
    };
    let cell = pool.take(64 * MIB, 4).unwrap();
    let mut child = sleeper();
    pool.attach(&cell, child.id() as i32).unwrap();
    std::mem::forget((cell, pool));
    remove_pool(&name, Duration::from_secs(20)).unwrap();
    assert!(!child.wait().unwrap().success());
    assert_eq!(left_of(&name), Vec::<PathBuf>::new());
}

#[test]
fn removal_of_a_folder_that_cannot_go_ends_in_time() {
    let Some((mut pool, name)) = pool() else {
        return;
    };
    let cell = pool.take(64 * MIB, 4).unwrap();
    let inner = cell.path().join("not-ours");
    fs::create_dir(&inner).unwrap(); // a folder within a cell, which nobody removes
    let begin = Instant::now();
    let error = remove_pool(&name, Duration::from_millis(100)).unwrap_err();
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert!(
        error.to_string().contains(cell.path().to_str().unwrap()),
        "{error}"
    );
    fs::remove_dir(&inner).unwrap();
    pool.close().unwrap();
}

#[test]
fn a_sweep_takes_what_dead_owners_left_and_nothing_else() {
    let Some((mut live, live_name)) = pool() else {
        return;
    };
    let cell = live.take(64 * MIB, 4).unwrap();
    let base = cell
        .path()
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .to_path_buf();

    let mut owner = sleeper();
    let dead_name = PoolName::new(owner.id(), 1).unwrap();
    let mut dead = Cgroups::open(&dead_name).unwrap();
    let mut survivor = sleeper(); // a worker that outlived its owner
    let lost = dead.take(64 * MIB, 4).unwrap();
    dead.attach(&lost, survivor.id() as i32).unwrap();
    std::mem::forget((lost, dead));

    // The first five are over: another start time of a live owner is another, dead process, also
    // of an older program; no process has the number after the last; and nobody holds the next two,
    // whose stub's number is another's by now, or whose numbers are counted in another PID namespace.
    let text = live_name.to_string();
    let parts: Vec<_> = text.split('-').collect();
    let (pid, start, space) = (parts[1], parts[2], parts[3]);
    let own = std::process::id();
    let gone = [
        format!("spade-{pid}-1-{space}-1-locked"),
        format!("spade-{pid}-1-{space}-1"),
        format!("spade-{pid}-{start}-{space}-4194305-locked"),
        format!("spade-{pid}-{start}-{space}-1-locked"),
        format!("spade-999999999-{start}-1-{own}-locked"),
    ];
    let held = [
        format!("spade-{pid}-{start}-{space}-2-locked"), // ours, alive
        format!("spade-999999998-{start}-1-{own}-locked"), // of another PID namespace, alive
    ];
    let foreign = [
        // Of an older program, which locks nothing: alive for all that can be told.
        format!("spade-{pid}-{start}-{space}-1"),
        format!("spade-999999999-{start}-1-{own}"),
        format!("spade-0{pid}-1-{space}-1"), // not spelt as we do
        format!("spade-{pid}-1-{space}-1-x"),
        format!("spade-notes-{own}"),
        format!("foreign-{own}"),
    ];
    let locks: Vec<_> = held
        .iter()
        .map(|name| {
            fs::create_dir(base.join(name)).unwrap();
            let folder = fs::File::open(base.join(name)).unwrap();
            folder.try_lock_shared().unwrap();
            folder
        })
        .collect();
    // Beside our own cgroup, where the pools of another session lie.
    let above = base.parent().unwrap();
    let beside = above.join(format!("session-{own}"));
    let may = above.join("cgroup.procs").exists() && fs::create_dir(&beside).is_ok();
    let left_there = beside.join(&gone[0]);
    if may {
        fs::create_dir(&left_there).unwrap();
    }
    for name in foreign.iter().chain(&gone) {
        fs::create_dir(base.join(name)).unwrap();
    }

    // While the owner lives, its folder stays.
    sweep(Duration::from_secs(20));
    assert!(!left_of(&dead_name).is_empty());
    owner.kill().unwrap();
    owner.wait().unwrap();
    sweep(Duration::from_secs(20)); // another pool's start may have been faster
    assert_eq!(left_of(&dead_name), Vec::<PathBuf>::new());
    assert!(!survivor.wait().unwrap().success());

    // A child of another test may have a lock of ours for a moment.
    let until = Instant::now() + Duration::from_secs(20);
    let left = || gone.iter().any(|name| base.join(name).exists()) || left_there.exists();
    while left() && Instant::now() < until {
        sweep(Duration::from_secs(20));
    }
    assert!(!left());
    if may {
        fs::remove_dir(&beside).unwrap();
    }
    for name in held.iter().chain(&foreign) {
        fs::remove_dir(base.join(name)).unwrap(); // fails if the sweep took it
    }
    drop(locks);
    assert!(cell.path().exists());
    assert_eq!(live.usage(&cell).oom_kills, Some(0));
    live.close().unwrap();
}

#[test]
fn no_place_at_all_says_so() {
    let name = PoolName::new(std::process::id(), 0).unwrap();
    let error = Cgroups::open_in(Vec::new(), &name).unwrap_err();
    assert!(
        error.to_string().contains("no cgroup file system"),
        "{error}"
    );
}

/// Not a test of anything but what it prints: `cargo test --release -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn costs() {
    let begin = Instant::now();
    let Some((mut pool, _)) = pool() else { return };
    eprintln!("open with proof: {:?}", begin.elapsed());
    let mut micros: [Vec<f64>; 5] = Default::default();
    let mut timed = |row: usize, begin: Instant| {
        micros[row].push(begin.elapsed().as_secs_f64() * 1e6);
    };
    for round in 0..300 {
        let cells: Vec<_> = if round < 60 {
            Vec::from_iter((0..5).map(|_| {
                let begin = Instant::now();
                let cell = pool.take(64 * MIB, 1).unwrap();
                timed(usize::from(round > 0), begin);
                cell
            }))
        } else {
            let begin = Instant::now();
            let cell = pool.take(64 * MIB, 1).unwrap();
            timed(1, begin);
            vec![cell]
        };
        for cell in cells {
            let child = Toucher::start(1 << 20).unwrap();
            let begin = Instant::now();
            pool.attach(&cell, child.pid).unwrap();
            timed(2, begin);
            child.touch().unwrap();
            let begin = Instant::now();
            let _ = pool.usage(&cell);
            timed(3, begin);
            child.end().unwrap();
            let begin = Instant::now();
            pool.ended(cell);
            timed(4, begin);
        }
    }
    let names = ["take, made", "take, pooled", "attach", "usage", "ended"];
    for (name, mut row) in names.into_iter().zip(micros) {
        row.sort_by(f64::total_cmp);
        let at = |part: usize| row[(row.len() - 1) * part / 100];
        let (median, p10, p90, n) = (at(50), at(10), at(90), row.len());
        eprintln!("{name}: {median:.1} us (p10 {p10:.1}, p90 {p90:.1}, n {n})");
    }
    let begin = Instant::now();
    pool.close().unwrap();
    eprintln!("close: {:?}", begin.elapsed());
}
