//! The steps that lock the template for good, in order; its workers inherit them.

use std::ffi::{CStr, CString};
use std::io::{Error, Result};

use super::proof;
use super::sys::{confine, process};
use crate::capability::Report;
use crate::limits::Limits;
use crate::policy::Filters;

/// Lowest user id of a worker when the pool runs as root.
pub const FIRST_USER: u32 = 0x7000_0000;
/// Users of one pool: worker n gets the n-th.
const NUM_USERS: u32 = 1 << 16;
/// Pools that have users of their own; the kernel counts processes per user, past all namespaces.
const NUM_POOLS: u32 = 1 << 12;
/// The only folder of a worker that has files.
pub const SCRATCH: &CStr = c"/tmp";
/// Descriptors of the template, and of a worker without files; an event loop takes three.
const NUM_FILES: u64 = 32;
/// Descriptors of a worker with files.
const NUM_FILES_OPEN: u64 = 128;
/// Longest stack of a thread: the usual one, so that recursion is what it is elsewhere.
const STACK_BYTES: u64 = 8 << 20;

/// A worker's own file system in memory.
pub struct FilesPlan {
    /// Bytes it holds; also the longest file.
    pub bytes: u64,
    /// Options of the mount.
    pub options: CString,
}

impl FilesPlan {
    /// A file system of `bytes` with room for `inodes` files and folders, its root included.
    ///
    /// # Errors
    /// Either is 0: the kernel would read that as "no limit".
    pub fn new(bytes: u64, inodes: u64) -> Result<Self> {
        if bytes == 0 || inodes == 0 {
            let text = format!("files_bytes={bytes}, files_inodes={inodes}: both must be above 0");
            return Err(Error::other(text));
        }
        // Open to every user: it is seen in this worker's namespace alone.
        let options = CString::new(format!("size={bytes},nr_inodes={inodes},mode=777"))?;
        Ok(Self { bytes, options })
    }
}

/// What a worker needs to lock itself; made before the template is locked.
pub struct Plan {
    /// Compiled filters.
    pub filters: Filters,
    /// Hard CPU limit of a worker.
    pub cpu_s: u64,
    /// Each worker becomes a user of its own, the first of them this one; see `first_user`.
    pub first_user: Option<u32>,
    /// Whether the broker's death does not already kill by kernel rule.
    pub die_with_parent: bool,
    /// Namespace flags of a worker's clone, as far as they are the same for every profile.
    pub clone_flags: i32,
    /// Whether clone3 may be tried.
    pub clone3: bool,
    /// Where libc keeps the thread id.
    pub thread_id_address: u64,
    /// Each worker's own file system; `None` leaves it no writable path.
    pub files: Option<FilesPlan>,
    /// Processes and threads of a worker, itself included.
    pub pids: u64,
    /// Memory of a worker above that of the template.
    pub memory_bytes: u64,
    /// Most branches of one forkable worker.
    pub branches: u64,
    /// Version of Landlock that a worker with files enters itself; set by `lock_template`.
    pub landlock: Option<u32>,
}

impl Plan {
    /// User id of a worker, if it gets one of its own.
    pub fn user_of(&self, id: u32) -> Option<u32> {
        self.first_user.map(|first| first + id % NUM_USERS)
    }

    /// Namespace flags of a worker's clone.
    pub fn worker_flags(&self) -> i32 {
        let mounts = if self.files.is_some() {
            libc::CLONE_NEWNS
        } else {
            0
        };
        self.clone_flags | mounts
    }

    /// Limit of processes and threads of a worker, as a backstop of the filter and the cgroup.
    ///
    /// The kernel counts per user: where all workers are one user, a limit above 1 would be used
    /// up by siblings, so that only "none at all" can be said.
    pub fn most_processes(&self, forkable: bool) -> Option<u64> {
        if self.pids <= 1 && !forkable {
            return Some(1);
        }
        let family = if forkable { self.branches + 1 } else { 1 };
        self.first_user.map(|_| self.pids.max(1) * family)
    }
}

/// The first user id of this pool, the same in all its templates and another one in every other
/// pool that lives (as long as there are fewer than `NUM_POOLS`): made of the number of the PID
/// namespace that the pool's broker made, or of the broker where it could not. `None` where such
/// ids do not exist, as in a container that has few.
pub fn first_user() -> Option<u32> {
    let parent = process::parent_pid();
    let number = std::fs::read_link("/proc/self/ns/pid")
        .ok()
        .filter(|_| parent == 1)
        .and_then(|link| {
            let text = link.to_string_lossy();
            let digits = text.trim_start_matches("pid:[").trim_end_matches(']');
            digits.parse::<u32>().ok()
        })
        .unwrap_or(parent.unsigned_abs());
    let first = FIRST_USER + number % NUM_POOLS * NUM_USERS;
    let exist = ["uid_map", "gid_map"].into_iter().all(|name| {
        std::fs::read_to_string(format!("/proc/self/{name}"))
            .is_ok_and(|map| holds_users(&map, first))
    });
    exist.then_some(first)
}

/// Whether a map of ids (lines of inside, outside, count) has those of one pool.
fn holds_users(map: &str, first: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(inside)), Some(Ok(_)), Some(Ok(count))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return false;
        };
        let (from, to) = (u64::from(first), u64::from(first) + u64::from(NUM_USERS));
        inside <= from && to <= inside + count
    })
}

/// Run a step unless a test leaves it out.
pub fn unless_left_out<T>(
    limits: &Limits,
    layer: &str,
    step: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if limits.lacks(layer) {
        return Err(Error::other("left out on purpose"));
    }
    step()
}

/// Lock the calling process for good. Every layer that fails is noted, none is skipped silently.
pub fn lock_template(limits: &Limits, plan: &mut Plan, template_bytes: u64, report: &mut Report) {
    // An own mount namespace first: it needs capabilities and calls that later steps take away.
    let folder = plan.files.is_some().then_some(SCRATCH);
    let root = unless_left_out(limits, "empty_root", || {
        process::unshare(libc::CLONE_NEWNS)?;
        confine::empty_root(folder)?;
        proof::empty_root(folder)
    });
    report.note(
        "empty_root",
        &root,
        "the root is an empty read-only file system",
    );
    let scratch = plan.files.as_ref().map(|files| {
        let tried = unless_left_out(limits, "files", || try_scratch(files, root.is_ok()));
        (
            tried,
            format!("{} bytes in memory at /tmp, per worker", files.bytes),
        )
    });

    let rlimits = unless_left_out(limits, "rlimits", || limit_resources(plan));
    let rlimits = rlimits.and_then(|()| {
        let bytes = template_bytes.saturating_add(plan.memory_bytes);
        confine::limit(libc::RLIMIT_AS, bytes)?;
        proof::address_space(bytes)
    });
    let detail = format!(
        "address space {} bytes above the template",
        plan.memory_bytes
    );
    report.note("rlimits", &rlimits, &detail);

    let privileges = unless_left_out(limits, "no_new_privs", || {
        confine::no_new_privileges()?;
        proof::no_new_privileges()
    });
    report.note("no_new_privs", &privileges, "");

    // Before the filter, which refuses the calls of Landlock. A domain that rules files refuses
    // mounts, so with files each worker enters its own after its mount.
    let landlock = unless_left_out(limits, "landlock", || {
        let version = confine::landlock_version()?;
        if plan.files.is_none() {
            confine::landlock_nothing(version)?;
            proof::landlock()?;
        }
        Ok(version)
    });
    plan.landlock = landlock.as_ref().ok().copied();
    let detail = landlock
        .as_ref()
        .map_or(String::new(), |version| format!("ABI {version}"));
    report.note("landlock", &landlock, &detail);

    // The filter of such a profile lets files be opened: Landlock says which.
    if let Some((tried, detail)) = scratch {
        let needed = landlock.map_err(|e| Error::other(format!("needs Landlock: {e}")));
        report.note("files", &tried.and(needed), &detail);
    }

    // Last, because everything above needs more calls than it leaves.
    let seccomp = unless_left_out(limits, "seccomp", || {
        confine::install_filter(&plan.filters.allow)
    });
    report.note("seccomp", &seccomp, "allow-list inherited, seal per worker");
}

/// Mount what each worker will mount, look at it, and take it away again.
fn try_scratch(files: &FilesPlan, has_root: bool) -> Result<()> {
    if !has_root {
        return Err(Error::other("needs the empty root, which is missing"));
    }
    confine::mount_scratch(SCRATCH, &files.options)?;
    let held = confine::is_scratch(SCRATCH);
    confine::unmount(SCRATCH)?;
    if held? {
        return Ok(());
    }
    Err(Error::other("the kernel dropped a flag of the mount"))
}

/// Descriptors that a worker may have, with or without files.
pub fn most_descriptors(files: bool) -> u64 {
    if files { NUM_FILES_OPEN } else { NUM_FILES }
}

/// What is the same for every worker of this template. Address space is set by the caller.
fn limit_resources(plan: &Plan) -> Result<()> {
    let files = plan.files.as_ref();
    let open = most_descriptors(files.is_some());
    confine::limit(libc::RLIMIT_CORE, 0)?;
    confine::limit(libc::RLIMIT_FSIZE, files.map_or(0, |f| f.bytes))?;
    confine::limit(libc::RLIMIT_NOFILE, open)?;
    confine::limit(libc::RLIMIT_MEMLOCK, 0)?;
    confine::limit(libc::RLIMIT_MSGQUEUE, 0)?;
    confine::limit(libc::RLIMIT_STACK, STACK_BYTES)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::os::fd::AsRawFd;

    use super::super::sys::io;
    use super::*;

    /// Run `body` in a forked child; its first error, as text.
    fn in_child(body: fn() -> Result<()>) -> std::result::Result<(), String> {
        let (read, write) = io::socket_pair(true).map_err(|e| e.to_string())?;
        if process::fork().map_err(|e| e.to_string())? == 0 {
            let text = body().err().map_or("ok".to_owned(), |e| e.to_string());
            let _ = io::write_all(write.as_raw_fd(), text.as_bytes());
            process::leave(0);
        }
        drop(write);
        let mut buffer = [0; 512];
        let length = io::read(read.as_raw_fd(), &mut buffer).unwrap_or(0);
        match &buffer[..length] {
            b"ok" => Ok(()),
            other => Err(String::from_utf8_lossy(other).into_owned()),
        }
    }

    fn claim(holds: bool, text: &str) -> Result<()> {
        if holds {
            Ok(())
        } else {
            Err(Error::other(text.to_owned()))
        }
    }

    fn enter_root() -> Result<FilesPlan> {
        let (user, group) = process::identity();
        if user == 0 {
            process::unshare(libc::CLONE_NEWNS)?;
        } else {
            process::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)?;
            fs::write("/proc/self/setgroups", "deny")?;
            fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
            fs::write("/proc/self/gid_map", format!("0 {group} 1"))?;
        }
        confine::empty_root(Some(SCRATCH))?;
        FilesPlan::new(1 << 20, 8)
    }

    #[test]
    fn a_worker_with_files_has_one_small_folder_that_only_it_sees() {
        let tried = in_child(|| {
            let files = match enter_root() {
                Err(e) if e.kind() == ErrorKind::PermissionDenied => return Ok(()), // a container
                other => other?,
            };
            try_scratch(&files, true)?;
            claim(
                fs::read_dir("/tmp")?.count() == 0,
                "the trial left something",
            )?;
            claim(
                fs::write("/tmp/x", "").is_err(),
                "writable before the mount",
            )?;
            process::unshare(libc::CLONE_NEWNS)?;
            confine::mount_scratch(SCRATCH, &files.options)?;
            confine::no_new_privileges()?;
            if let Ok(version) = confine::landlock_version() {
                confine::landlock_below(version, SCRATCH)?;
                let again = confine::mount_scratch(SCRATCH, &files.options);
                claim(again.is_err(), "mounted again below Landlock")?;
                let link = std::os::unix::fs::symlink("/tmp/a", "/tmp/link");
                claim(link.is_err(), "made a symbolic link")?;
                let list = fs::read_dir("/").map(drop).map_err(|e| e.kind());
                claim(list == Err(ErrorKind::PermissionDenied), "listed the root")?;
            }
            confine::drop_capabilities()?;
            fs::write("/tmp/a", "text")?;
            fs::create_dir("/tmp/folder")?;
            fs::rename("/tmp/a", "/tmp/folder/b")?;
            claim(
                fs::read_to_string("/tmp/folder/b")? == "text",
                "not what was written",
            )?;
            claim(fs::write("/b", "").is_err(), "wrote into the root")?;
            let full = fs::write("/tmp/big", vec![0; 2 << 20]).map_err(|e| e.kind());
            claim(full == Err(ErrorKind::StorageFull), "no end of the room")?;
            let made = (0..20)
                .take_while(|n| fs::write(format!("/tmp/{n}"), "").is_ok())
                .count();
            claim(made == 4, &format!("{made} more files for 8 inodes"))?; // root, folder, b, big
            fs::remove_file("/tmp/big")?;
            fs::remove_file("/tmp/folder/b")?;
            fs::remove_dir("/tmp/folder")
        });
        assert_eq!(tried, Ok(()));
    }

    #[test]
    fn users_are_taken_only_where_a_container_has_them() {
        assert!(holds_users(
            "         0          0 4294967295\n",
            FIRST_USER
        ));
        assert!(!holds_users("0 100000 65536\n", FIRST_USER));
        assert!(!holds_users("0 1000 1\n1 100000 65536\n", FIRST_USER));
        assert!(holds_users("0 1000 1\n1 100000 4000000000\n", FIRST_USER));
        assert!(!holds_users("garbage", FIRST_USER));
    }

    #[test]
    fn a_file_system_without_limits_cannot_be_planned() {
        assert!(FilesPlan::new(0, 8).is_err());
        assert!(FilesPlan::new(1 << 20, 0).is_err());
    }
}
