from __future__ import annotations

import json
from pathlib import Path

import pytest

from spade_async.errors import ConfigError
from spade_async.supervisor.model import is_folder
from spade_async.supervisor.model_folder import check_model_folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The least that looks like a model: one 4-byte tensor."""
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "tokenizer.json").write_text("{}")
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    data = len(header).to_bytes(8, "little") + header + bytes(4)
    (tmp_path / "model.safetensors").write_bytes(data)
    return tmp_path


def test_complete_folder_passes(model: Path) -> None:
    check_model_folder(model)


def test_missing_folder_names_the_alternative(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'no such folder; give .* or "nano"'):
        check_model_folder(tmp_path / "none")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_missing_file_is_named(model: Path, name: str) -> None:
    (model / name).unlink()
    words = {"config.json": "no config.json", "tokenizer.json": "no tokenizer"}
    with pytest.raises(ConfigError, match=words.get(name, "no weights")):
        check_model_folder(model)


@pytest.mark.parametrize("cut", [1, 3, 20])
def test_truncated_weights_are_found(model: Path, cut: int) -> None:
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-cut])
    with pytest.raises(ConfigError, match=r"model\.safetensors is damaged"):
        check_model_folder(model)


@pytest.mark.parametrize("content", [b"", b"junk", b"\xff" * 100, bytes(100)])
def test_junk_weights_are_found(model: Path, content: bytes) -> None:
    (model / "model.safetensors").write_bytes(content)
    with pytest.raises(ConfigError, match="is damaged"):
        check_model_folder(model)


@pytest.mark.parametrize("content", ["{", "[]"])
def test_damaged_configuration_is_found(model: Path, content: str) -> None:
    (model / "config.json").write_text(content)
    with pytest.raises(ConfigError, match=r"config\.json"):
        check_model_folder(model)


def test_names_and_folders_are_told_apart(tmp_path: Path) -> None:
    assert is_folder(str(tmp_path))
    assert is_folder("models/none")
    assert not is_folder("nano")
