"""Profiles with files: a small file system of the episode's own, and nothing but files."""

import os
from pathlib import Path

import pytest

from spade_async.errors import SandboxError
from spade_async.sandbox import SyncPool
from spade_async.sandbox_profiles import Profile
from tests.support.family import Family
from tests.support.jail_probe import errno_of, policy, runner, source

pytestmark = pytest.mark.timeout(120)

SIZES = {"size=16384k", "nr_inodes=1024", "size=1024k", "nr_inodes=16"}
SMALL_FILES = Profile("small", tiers=("files",), files_bytes=1 << 20, files_inodes=16)


@pytest.fixture(scope="module")
def pool():
    with SyncPool(policy("files", SMALL_FILES)) as pool:
        yield pool


@pytest.fixture
def run(pool):
    return runner(pool)


def test_files_are_written_read_listed_moved_and_removed_below_tmp(run):
    body = """
    import glob, pathlib, shutil, tempfile
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "a.txt"
        path.write_text("hello")
        os.makedirs(folder + "/deep/er")
        os.rename(path, folder + "/deep/er/b.txt")
        shutil.copyfile(folder + "/deep/er/b.txt", folder + "/c.txt")
        with open(folder + "/c.txt", "r+b") as file:
            file.seek(2)
            file.truncate()
        out = [folder.startswith("/tmp/"), sorted(os.listdir(folder)),
               open(folder + "/c.txt").read(), len(glob.glob(folder + "/**", recursive=True))]
    with tempfile.TemporaryFile("w+") as file:
        file.write("x" * 100)
        file.seek(90)
        out.append(file.read())
    out.append([os.listdir("/tmp"), tempfile.gettempdir(), os.environ["TMPDIR"], os.getcwd()])
    """
    left = [[], "/tmp", "/tmp", "/"]
    assert run("files", body) == [True, ["c.txt", "deep"], "he", 5, "x" * 10, left]


def test_a_full_file_system_says_so_and_goes_on(run):
    body = """
    written = 0
    try:
        with open('/tmp/big', 'wb', buffering=0) as file:
            while True: written += file.write(bytes(65536))
    except OSError as error:
        out = [error.errno, written]
    os.remove('/tmp/big')
    with open('/tmp/again', 'w') as file: out.append(file.write('fits'))
    """
    errno, written, again = run("small", body)
    assert (errno, again) in ((28, 4), (27, 4))  # ENOSPC, or EFBIG: one file as large as all
    assert (1 << 20) - 65536 <= written <= 1 << 20
    body = """
    made = 0
    try:
        while True:
            open(f'/tmp/{made}', 'w').close()
            made += 1
    except OSError as error:
        out = [error.errno, made]
    """
    assert run("small", body) == [28, 15]  # 16 inodes, one of them /tmp itself
    sparse = "file = open('/tmp/s', 'wb')\n" + errno_of("file.truncate(1 << 40)")
    assert run("small", sparse) == 27


@pytest.mark.parametrize(
    "call",
    [
        "os.symlink('/etc/passwd', '/tmp/l')", "os.link('/tmp/a', '/tmp/h')",
        "os.mknod('/tmp/n')", "os.mkfifo('/tmp/f')", "os.chmod('/tmp/a', 0o4755)",
        "os.chown('/tmp/a', 0, 0)", "os.execv('/tmp/a', ['a'])",
        "os.setxattr('/tmp/a', 'user.a', b'')",
        "os.chdir('/tmp')", "os.chroot('/tmp')", "os.memfd_create('x')", "os.statvfs('/tmp')",
        "os.open('/tmp', os.O_PATH)", "os.open('/tmp', os.O_TMPFILE | os.O_RDWR)",
        "os.posix_spawn('/tmp/a', ['a'], {})", "os.listdir('/')", "os.listdir('/tmp/..')",
        "os.mkdir('/x')", "os.rename('/tmp/a', '/a')", "os.rmdir('/tmp')",
    ],
)  # fmt: skip
def test_files_give_nothing_but_files(run, call):
    assert run("files", "open('/tmp/a', 'w').close()\n" + errno_of(call)) in (1, 13, 16, 18, 30)


def test_files_show_nothing_of_the_host(run):
    for path in ("/etc/passwd", "/proc/self/environ", "/dev/null", "/usr", "/root", "/home"):
        assert run("files", errno_of(f"os.stat({path!r}); open({path!r})")) == 2, path
    assert run("files", errno_of("open('/x', 'w')")) in (13, 30)


def test_each_worker_has_a_mount_of_its_own_with_size_inodes_and_no_rights(pool):
    """Seen from outside: what the kernel says of the mounts of the workers that live."""
    with (
        pool.session(source("out = 1"), 1, profile="files") as first,
        pool.session(source("out = 1"), 1, profile="files") as second,
        pool.session(source("out = 1"), 1, profile="small") as third,
    ):
        assert all(session.loaded.ok for session in (first, second, third))
        workers = Family().workers
        if not workers:
            pytest.skip("no PID namespaces here: templates and workers look alike")
        found = {}
        for pid in workers:
            try:
                lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
            except PermissionError:
                pytest.skip("an ordinary user cannot look into a worker")
            # "id parent device root place flags [tags] - type source options"
            fields = [line.partition(" - ") for line in lines]
            words = [(left.split(), right.split()) for left, _, right in fields]
            [mine] = [(left, right) for left, right in words if left[4].endswith("/tmp")]
            flags, (kind, _, options) = set(mine[0][5].split(",")), mine[1]
            assert kind == "tmpfs"
            assert flags >= {"rw", "nosuid", "nodev", "noexec", "nosymfollow"}, flags
            found[mine[0][2]] = set(options.split(",")) & SIZES
            # Nothing else can be written.
            others = [left for left, _ in words if left is not mine[0]]
            assert all("ro" in left[5].split(",") for left in others), lines
        assert len(found) == len(workers), "one device each: no file system is shared"
        assert sorted(map(sorted, found.values()))[0] == ["nr_inodes=1024", "size=16384k"]
        assert ["nr_inodes=16", "size=1024k"] in map(sorted, found.values())


def test_nothing_that_is_written_is_seen_by_others_or_stays(pool, run, tmp_path):
    before = set(os.listdir("/tmp"))
    write = "open('/tmp/canary-5b1c', 'w').write('x'); out = os.listdir('/tmp')"
    look = "out = os.listdir('/tmp')"
    with (
        pool.session(source(write), 1, profile="files") as first,
        pool.session(source(look), 1, profile="files") as second,
    ):
        assert first.reset().ok
        assert second.reset().ok
        assert eval(first.step("go").observation) == ["canary-5b1c"]
        assert eval(second.step("go").observation) == []
        assert eval(first.step("go").observation) == ["canary-5b1c"], "it stays for the episode"
    for _ in range(3):
        assert run("files", look) == []
    assert "canary-5b1c" not in set(os.listdir("/tmp")) - before
    mounts = Path("/proc/self/mounts").read_text()
    assert "nr_inodes=1024,size=16384k" not in mounts


@pytest.mark.parametrize("layer", ["empty_root", "landlock", "files"])
def test_files_are_refused_where_their_layers_are_missing_and_others_run(layer):
    without = frozenset({layer})
    with pytest.raises(SandboxError, match="files") as caught:
        SyncPool(policy("compute", "files"), _without=without).start()
    assert "profiles without files run without" in str(caught.value)
    with (
        SyncPool(policy("compute"), _without=without) as pool,
        pool.session(source("out = 1"), 1) as session,
    ):
        assert session.reset().ok
