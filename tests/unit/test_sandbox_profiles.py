"""Profiles of the jail as data: what a table may say, what it inherits, what a bad one is told."""

import dataclasses
import os
import sys
import types

import pytest

from spade_async.errors import SandboxError
from spade_async.sandbox_profiles import (
    Profile,
    builtin_profiles,
    check_profile,
    load_profiles,
    profile,
)

POOL = types.SimpleNamespace(
    python=None, memory_bytes=256 << 20, spares=8, rotate_after=5000, rotate_after_s=600.0
)


def load(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return load_profiles(path)


def test_the_built_in_profiles_are_those_that_are_documented():
    assert set(builtin_profiles()) == {
        "compute", "files", "asyncio", "threads", "numpy", "numpy-files",
    }  # fmt: skip
    assert profile("compute") == Profile("compute")
    assert profile("numpy") == Profile("numpy", packages=("numpy",))
    both = profile("numpy-files")
    assert (both.packages, both.tiers) == (("numpy",), ("files",))
    assert both.files_bytes == profile("files").files_bytes > 0


def test_a_profile_is_read_by_name_from_a_file_or_passed_on(tmp_path):
    found = load(tmp_path, '[chess]\nextends = "numpy"\nmemory_bytes = 134_217_728\n')
    assert found == {"chess": Profile("chess", packages=("numpy",), memory_bytes=128 << 20)}
    assert profile(f"{tmp_path / 'mine.toml'}:chess") == found["chess"]
    assert profile(found["chess"]) is found["chess"]


def test_lists_are_joined_and_the_rest_is_replaced(tmp_path):
    text = """
    [base]
    packages = ["json", "csv"]
    virtual_clock = true
    memory_bytes = 1048576
    [child]
    extends = ["files", "base"]
    packages = ["csv", "math"]
    memory_bytes = 0
    files_bytes = 65536
    """
    child = load(tmp_path, text)["child"]
    assert child == Profile(
        "child", packages=("json", "csv", "math"), tiers=("files",), files_bytes=65536,
        files_inodes=1024, virtual_clock=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[a]\npackges = ["x"]', ["'a'", "packges", "did you mean 'packages'"]),
        ('[a]\nextends = "numpi"', ["'a'", "numpi", "did you mean 'numpy'"]),
        ('[a]\nextends = "b"\n[b]\nextends = "c"\n[c]\nextends = "b"', ["b -> c -> b"]),
        ('[a]\nextends = "a"', ["a -> a"]),
        ("[a]\nextends = 3", ["extends=3"]),
        ("[numpy]", ["numpy", "built in"]),
        ("pids = 1", ["pids=1", "table"]),
        ("[a", ["mine.toml"]),
        ('[a]\ntiers = ["threads"]', ["pids=1", "at least 2"]),
        ("[a]\nfiles_bytes = 65536", ["files_bytes=65536", "tiers"]),
        ('[a]\nextends = "files"\nfiles_inodes = 0', ["files_inodes=0", "above 0"]),
        ('[a]\nmemory_bytes = "1"', ["memory_bytes='1'", "1048576"]),
        ("[A]", ["'A'", "a-z"]),
    ],
)
def test_a_bad_table_is_told_what_and_how(tmp_path, text, words):
    with pytest.raises(ValueError, match=r"profile|mine\.toml") as caught:
        load(tmp_path, text)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("packages", "numpy"), ("packages", ("a b",)), ("packages", (1,)), ("packages", ("",)),
        ("tiers", ("fils",)), ("files_bytes", -1), ("files_bytes", 1 << 60), ("pids", 0),
        ("pids", True), ("pids", 10**6), ("memory_bytes", 1.5), ("virtual_clock", 1),
        ("python", "python3"), ("python", None), ("spares", -1), ("rotate_after", 0.5),
        ("rotate_after_s", float("nan")), ("rotate_after_s", "1"), ("rotate_after_s", 0.1),
    ],
)  # fmt: skip
def test_a_record_that_cannot_work_names_profile_and_key(key, value):
    with pytest.raises(ValueError, match=f"profile 'x': {key}="):
        Profile("x", **{key: value})


@pytest.mark.parametrize("name", ["", "A", "-a", "a" * 33, "a b", "ä", None, "a\n"])
def test_a_name_that_cannot_be_is_refused(name):
    with pytest.raises(ValueError, match="profile name"):
        Profile(name)


def test_an_unknown_name_gets_a_suggestion():
    with pytest.raises(ValueError, match="did you mean 'asyncio'"):
        profile("asincio")
    with pytest.raises(ValueError, match="known are asyncio, compute, files"):
        profile("zzzz")
    with pytest.raises(ValueError, match="pass a name or a Profile"):
        profile(3)
    with pytest.raises(ValueError, match="No such file"):
        profile("/nonexistent.toml:a")


def test_a_key_by_its_name_elsewhere_and_a_file_without_a_name_say_what_to_write(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[puzzles]\nimports = ["numpy"]\n')
    with pytest.raises(ValueError, match="unknown key 'imports': use 'packages'"):
        profile(f"{path}:puzzles")
    path.write_text('[puzzles]\npackages = ["numpy"]\n[b]\n')
    with pytest.raises(ValueError, match=r'mine.toml:NAME" \(in it: puzzles, b\)'):
        profile(str(path))


def test_limits_take_from_the_pool_what_the_profile_leaves_open():
    assert profile("files").to_limits(POOL) == {
        "name": "files", "python": sys.executable, "imports": [], "import_paths": [],
        "tiers": ["files"], "files_bytes": 16 << 20, "files_inodes": 1024,
        "memory_bytes": 256 << 20, "pids": 1, "virtual_clock": False, "spares": 8,
        "rotate_after": 5000, "rotate_after_s": 600.0,
    }  # fmt: skip
    own = Profile("own", memory_bytes=1 << 20, spares=1, rotate_after=7, rotate_after_s=5, pids=1)
    limits = own.to_limits(POOL)
    assert (limits["memory_bytes"], limits["spares"]) == (1 << 20, 1)
    assert (limits["rotate_after"], limits["rotate_after_s"]) == (7, 5.0)


def test_packages_are_looked_for_where_the_interpreter_itself_looks():
    limits = Profile("x", packages=("json",)).to_limits(POOL)
    assert limits["imports"] == ["json"]
    assert limits["import_paths"] == [path for path in sys.path if path]
    other = os.path.realpath(sys.executable)  # outside its virtual environment: another one
    if other != sys.executable:
        paths = Profile("x", packages=("json",), python=other).to_limits(POOL)["import_paths"]
        assert any(os.path.exists(os.path.join(path, "json")) for path in paths)
        assert not any(path.startswith(sys.prefix + os.sep) for path in paths)
    with pytest.raises(SandboxError, match=r"profile 'x': /nonexistent"):
        Profile("x", packages=("json",), python="/nonexistent").to_limits(POOL)


def test_a_file_system_larger_than_the_memory_it_counts_against_is_refused():
    small = dataclasses.replace(profile("files"), memory_bytes=1 << 20)
    with pytest.raises(ValueError, match=r"files_bytes=16777216: set at most memory_bytes=1048576"):
        small.to_limits(POOL)


def test_a_pair_of_interpreter_and_packages_is_tried():
    good = check_profile(Profile("x", packages=("json", "html.parser")))
    assert good.ok, good
    assert "imports json, html.parser" in good.detail
    missing = check_profile(Profile("x", packages=("json", "no_such_module")))
    assert not missing.ok
    assert "no_such_module" in missing.detail
    assert "pip install" in missing.remedy


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (None, "cannot be started"),
        ("#!/bin/sh\nexit 3\n", "exit code 3"),
        ("#!/bin/sh\necho hello\n", "does not answer"),
        ("#!/bin/sh\necho '[[3, 10, 1], []]'\n", "Python 3.10.1"),
        (
            "#!/bin/sh\ncase $1 in -E) echo '[[3, 12, 1], []]';; *) kill -9 $$;; esac\n",
            "without an",
        ),
    ],
)
def test_what_is_no_usable_interpreter_is_a_value(tmp_path, text, word):
    path = tmp_path / "python"
    if text is not None:
        path.write_text(text)
        path.chmod(0o755)
    found = check_profile(Profile("x", python=str(path), packages=("json",)))
    assert not found.ok
    assert word in found.detail
    assert found.remedy
