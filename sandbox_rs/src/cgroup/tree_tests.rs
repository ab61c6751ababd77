//! The logic over files, against a made-up tree in a temporary folder: version 2, whose memory
//! controller the machines of these tests do not have, and the text of mounts.

use std::fs;
use std::path::PathBuf;

use super::cell::{Cell, Folders};
use super::place::{Place, Version, places};
use super::{delegation, files};

/// A folder of files that goes with the test.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let folder = std::env::temp_dir().join(format!("spade-tree-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a temporary folder");
        let tree = Self(folder);
        for (file, text) in files {
            tree.write(file, text);
        }
        tree
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).expect("a file in it");
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.0.join(file)).expect("the file")
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const FRESH: [(&str, &str); 9] = [
    ("cgroup.procs", ""),
    ("memory.max", ""),
    ("memory.swap.max", ""),
    ("memory.oom.group", ""),
    ("memory.current", "4096\n"),
    ("memory.peak", "81920\n"),
    (
        "memory.events",
        "low 0\nhigh 0\nmax 3\noom 0\noom_kill 0\noom_group_kill 0\n",
    ),
    ("pids.max", ""),
    ("pids.events", "max 0\n"),
];

fn cell(tree: &Tree) -> Cell {
    let folders = Folders {
        version: Version::V2,
        memory: tree.0.clone(),
        pids: None,
    };
    Cell::open(folders, (0, 0))
}

#[test]
fn version_2_limits_memory_swap_and_pids() {
    let tree = Tree::new("limits", &FRESH);
    cell(&tree).renew((64 << 20, 7)).expect("fresh");
    assert_eq!(tree.read("memory.max"), "67108864");
    assert_eq!(tree.read("memory.swap.max"), "0");
    assert_eq!(tree.read("memory.oom.group"), "1");
    assert_eq!(tree.read("pids.max"), "7");
}

#[test]
fn version_2_does_without_swap_and_pids_files() {
    let needed = [FRESH[0], FRESH[1], FRESH[4], FRESH[5], FRESH[6]];
    let tree = Tree::new("few", &needed);
    let mut cell = cell(&tree);
    cell.renew((64 << 20, 7)).expect("fresh");
    assert_eq!(tree.read("memory.max"), "67108864");
    assert_eq!(
        cell.usage().pids_hits,
        None,
        "a figure that is not there is not 0"
    );
}

#[test]
fn version_2_counts_from_where_the_last_worker_left() {
    let tree = Tree::new("counts", &FRESH);
    let mut cell = cell(&tree);
    cell.attach(4321).expect("a write");
    assert_eq!(tree.read("cgroup.procs"), "4321");
    tree.write("memory.events", "oom 2\noom_kill 2\n");
    tree.write("pids.events", "max 5\n");
    let usage = cell.finish();
    assert_eq!((usage.oom_kills, usage.pids_hits), (Some(2), Some(5)));
    assert_eq!(usage.peak_bytes, Some(81920));
    tree.write("cgroup.procs", "");
    cell.renew((64 << 20, 7)).expect("fresh");
    assert_eq!(cell.usage().oom_kills, Some(0));
    assert_eq!(cell.usage().pids_hits, Some(0));
    assert_eq!(
        &tree.read("memory.peak")[..1],
        "0",
        "set back through its own descriptor"
    );
}

#[test]
fn version_2_gives_up_a_cell_that_cannot_be_made_fresh() {
    let tree = Tree::new("stale", &FRESH);
    tree.write("cgroup.procs", "17\n");
    let error = cell(&tree).renew((64 << 20, 7)).expect_err("in use");
    assert!(error.to_string().contains("process"), "{error}");
    tree.write("cgroup.procs", "");
    tree.write("memory.current", "2097152\n");
    let error = cell(&tree).renew((64 << 20, 7)).expect_err("charged");
    assert!(error.to_string().contains("2097152"), "{error}");
    tree.write("memory.current", "0\n");
    fs::remove_file(tree.0.join("memory.peak")).expect("removed"); // Linux before 5.19
    let mut cell = cell(&tree);
    assert_eq!(cell.usage().peak_bytes, None);
    let error = cell.renew((64 << 20, 7)).expect_err("its peak stays");
    assert!(error.to_string().contains("peak"), "{error}");
}

#[test]
fn controllers_are_handed_down_or_it_is_said_why_not() {
    let control = "cgroup.subtree_control";
    let tree = Tree::new(
        "hand",
        &[("cgroup.controllers", "cpu memory\n"), (control, "")],
    );
    delegation::hand_down(&tree.0).expect("handed down");
    assert_eq!(tree.read(control), "+memory");
    tree.write(control, "memory\n");
    delegation::hand_down(&tree.0).expect("nothing to do");
    assert_eq!(tree.read(control), "memory\n");
    tree.write(control, "");
    tree.write("cgroup.controllers", "hugetlb\n");
    let error = delegation::hand_down(&tree.0).expect_err("no memory there");
    assert!(error.to_string().contains("hugetlb"), "{error}");
    let busy = std::io::Error::from_raw_os_error(libc::EBUSY);
    assert!(delegation::remedy(Version::V2, &busy).contains("leaf"));
    let denied = files::named(&tree.0, &std::io::Error::from_raw_os_error(libc::EACCES));
    assert!(delegation::remedy(Version::V1, &denied).contains("delegated"));
}

const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/cpu\\040pids rw,relatime shared:7 master:1 - cgroup cgroup rw,cpu,pids
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

#[test]
fn our_own_cgroup_is_found_in_each_hierarchy() {
    let own = "8:cpu,pids:/\n4:memory:/jobs/a:b\n1:name=systemd:/x\n0::/user/leaf\n";
    let found = places(HYBRID, own);
    let unified = PathBuf::from("/sys/fs/cgroup/unified/user");
    let v2 = |memory| Place {
        version: Version::V2,
        memory,
        pids: None,
    };
    let v1 = Place {
        version: Version::V1,
        memory: "/sys/fs/cgroup/memory/jobs/a:b".into(),
        pids: Some("/sys/fs/cgroup/cpu pids".into()),
    };
    assert_eq!(found, [v2(unified.join("leaf")), v2(unified), v1]);
}

#[test]
fn a_container_sees_its_part_and_nothing_outside_it() {
    let mounts = "9 1 0:1 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
    let below = places(mounts, "0::/docker/abc/run\n");
    let folders: Vec<_> = below.iter().map(|place| place.memory.clone()).collect();
    let expected = ["/sys/fs/cgroup/run", "/sys/fs/cgroup"].map(PathBuf::from);
    assert_eq!(folders, expected);
    let top = places(mounts, "0::/docker/abc\n");
    assert_eq!(top.len(), 1, "the parent of the mounted part is not ours");
    assert_eq!(top[0].memory, PathBuf::from("/sys/fs/cgroup"));
    assert!(places(mounts, "0::/docker/other\n").is_empty());
    let own_namespace = "9 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
    assert!(places(own_namespace, "0::/../sibling\n").is_empty());
    assert!(places("", "").is_empty());
}
