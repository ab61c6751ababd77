//! Version 2 of the control groups against the kernel that is there, with the controllers it has.
//!
//! Each test prints what it did: with the memory controller in version 1 (hybrid machines) the limits
//! themselves cannot be tried here, but folders, locks, sweeps and kills can.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use _sandbox_rs::cgroup::{Cgroups, Place, PoolName, Version, sweep};

/// Our own cgroup in version 2, or `None` with the reason printed.
fn own() -> Option<Place> {
    let mut places = Place::all().unwrap().into_iter();
    let place = places.find(|place| place.version == Version::V2);
    if place.is_none() {
        eprintln!("SKIPPED, no cgroup2 is mounted here");
    }
    place
}

/// Make a folder, or `None` with the reason printed.
fn made(folder: PathBuf) -> Option<PathBuf> {
    match fs::create_dir(&folder) {
        Ok(()) => Some(folder),
        Err(error) => {
            eprintln!("SKIPPED, {}: {error}", folder.display());
            None
        }
    }
}

fn controllers(folder: &Path) -> String {
    fs::read_to_string(folder.join("cgroup.controllers")).unwrap()
}

#[test]
fn limits_of_version_2_hold_on_this_kernel_or_it_is_said_what_it_lacks() {
    let Some(place) = own() else { return };
    let there = controllers(&place.memory);
    let name = PoolName::new(std::process::id(), 1).unwrap();
    let folder = place.memory.join(name.to_string());
    match Cgroups::open_in(vec![place], &name) {
        Ok(pool) => {
            // `open` has proved it: a child that touched three times its limit was killed.
            eprintln!("DONE with a kill for memory: {}", pool.detail());
            assert_eq!(pool.version(), "v2");
            pool.close().unwrap();
        }
        Err(error) => {
            let text = error.to_string();
            eprintln!("DONE without limits: {text}");
            assert!(text.starts_with("v2: "), "{text}");
            if !there.split_whitespace().any(|word| word == "memory") {
                let lacks = format!("has only \"{}\"", there.trim());
                let refused = ["ermission denied", "ead-only"];
                let said = text.contains(&lacks) || refused.iter().any(|word| text.contains(word));
                assert!(said, "{text}");
            }
        }
    }
    assert!(!folder.exists());
}

#[test]
fn a_pool_of_version_2_is_swept_with_what_lives_in_it_once_nobody_holds_it() {
    let Some(place) = own() else { return };
    let name = format!("spade-999999999-1-1-{}-locked", std::process::id());
    let Some(folder) = made(place.memory.join(name)) else {
        return;
    };
    let held = File::open(&folder).unwrap();
    held.try_lock_shared().unwrap();
    let cell = folder.join("1");
    fs::create_dir(&cell).unwrap();
    let mut command = Command::new("sleep");
    let mut lost = command.arg("60").stdout(Stdio::null()).spawn().unwrap();
    fs::write(cell.join("cgroup.procs"), lost.id().to_string()).unwrap();

    sweep(Duration::from_secs(20));
    assert!(cell.exists(), "somebody holds it");
    assert_eq!(lost.try_wait().unwrap(), None);

    drop(held);
    let until = Instant::now() + Duration::from_secs(20);
    while folder.exists() && Instant::now() < until {
        sweep(Duration::from_secs(20));
    }
    assert!(!folder.exists());
    assert_eq!(lost.wait().unwrap().signal(), Some(libc::SIGKILL));
    eprintln!("DONE with cgroup.kill in {}", cell.display());
}
