from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from spade_async.disk.manifest import MANIFEST, damage, write_manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_file({"a": np.arange(1000, dtype=np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "facts.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize("has_manifest", [True, False])
def test_a_whole_folder_has_no_damage(folder: Path, has_manifest: bool) -> None:
    if has_manifest:
        write_manifest(folder)
    assert damage(folder) is None


def truncate(path: Path) -> str:
    path.write_bytes(path.read_bytes()[:-100])
    return "bytes"


def empty(path: Path) -> str:
    path.write_bytes(b"")
    return "bytes"


def flip(path: Path) -> str:
    data = bytearray(path.read_bytes())
    data[-50] ^= 1
    path.write_bytes(data)
    return "other bytes than were written"


def remove(path: Path) -> str:
    path.unlink()
    return "missing"


@pytest.mark.parametrize("spoil", [truncate, empty, flip, remove])
def test_damage_is_named(folder: Path, spoil) -> None:
    write_manifest(folder)
    expected = spoil(folder / "model.safetensors")
    found = damage(folder)
    assert found is not None
    assert found.startswith("model.safetensors")
    assert expected in found


@pytest.mark.parametrize("spoil", [truncate, empty])
def test_a_truncated_file_of_a_folder_without_manifest_is_found(folder: Path, spoil) -> None:
    spoil(folder / "model.safetensors")
    assert str(damage(folder)).startswith("model.safetensors")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": {"a": 1}}'])
def test_a_damaged_manifest_is_damage(folder: Path, text: str) -> None:
    (folder / MANIFEST).write_text(text)
    assert str(damage(folder)).startswith(f"{MANIFEST} cannot be read")
