from __future__ import annotations

import errno
import hashlib
import stat
from pathlib import Path

import pytest
import torch

from spade_async.errors import WeightsError
from spade_async.types import PolicyVersion
from spade_async.weights.store import FileWeightStore

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4, dtype=torch.bfloat16)}


def test_what_is_published_is_what_is_loaded(tmp_path: Path) -> None:
    store = FileWeightStore(tmp_path / "w", keep=2)
    published = store.publish(PolicyVersion(0, 3), TENSORS)
    loaded = store.load(published.location, published.digest)
    assert loaded.keys() == TENSORS.keys()
    assert all(torch.equal(loaded[name], TENSORS[name]) for name in TENSORS)
    assert loaded["b"].dtype == torch.bfloat16
    loaded["a"].add_(1)
    data = Path(published.location).read_bytes()
    assert published.digest == hashlib.blake2b(data, digest_size=32).hexdigest()
    assert stat.S_IMODE((tmp_path / "w").stat().st_mode) == 0o700
    assert published.seconds >= 0


def test_tied_tensors_are_stored_once_and_come_back_under_both_names(tmp_path: Path) -> None:
    big = torch.randn(100, 10)
    store = FileWeightStore(tmp_path)
    published = store.publish(PolicyVersion(0, 0), {"embed": big, "head": big})
    assert Path(published.location).stat().st_size < 1.5 * big.numel() * 4
    loaded = store.load(published.location, published.digest)
    assert torch.equal(loaded["head"], big)
    assert loaded["head"].data_ptr() == loaded["embed"].data_ptr()


def test_views_and_transposed_tensors_are_stored_as_they_look(tmp_path: Path) -> None:
    whole = torch.randn(8, 4)
    tensors = {"top": whole[:3], "bottom": whole[3:], "turned": whole.t(), "leaf": whole[0:0]}
    store = FileWeightStore(tmp_path)
    published = store.publish(PolicyVersion(0, 0), tensors)
    loaded = store.load(published.location, published.digest)
    assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)


def test_only_the_newest_are_kept_and_a_new_branch_is_newer(tmp_path: Path) -> None:
    store = FileWeightStore(tmp_path, keep=2)
    for version in ((0, 9), (0, 10), (1, 9)):
        store.publish(PolicyVersion(*version), TENSORS)
    assert store.versions() == [(0, 10), (1, 9)]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_missing_file_is_named_with_the_next_move(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"nothing-here.*weights\.keep"):
        FileWeightStore(tmp_path).load(str(tmp_path / "nothing-here"), "00")


def test_a_changed_byte_is_refused(tmp_path: Path) -> None:
    store = FileWeightStore(tmp_path)
    published = store.publish(PolicyVersion(0, 0), TENSORS)
    path = Path(published.location)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(WeightsError, match="digest"):
        store.load(published.location, published.digest)


def test_a_file_that_is_no_weight_set_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"not a weight set")
    digest = hashlib.blake2b(path.read_bytes(), digest_size=32).hexdigest()
    with pytest.raises(WeightsError, match="damaged"):
        FileWeightStore(tmp_path).load(str(path), digest)


def test_a_folder_that_cannot_be_made_is_a_weights_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WeightsError, match="writing weights"):
        FileWeightStore(tmp_path / "file" / "w").publish(PolicyVersion(0, 0), TENSORS)


def test_a_write_that_fails_leaves_no_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(WeightsError, match="No space left"):
        FileWeightStore(tmp_path).publish(PolicyVersion(0, 0), TENSORS)
    assert not list(tmp_path.iterdir())
