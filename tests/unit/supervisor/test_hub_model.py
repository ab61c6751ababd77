"""`model.path` as a hub's name: taken from the cache, or refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import constants

from spade_async.config.schema import Config
from spade_async.errors import ConfigError
from spade_async.supervisor.hub import fetch, is_hub_id, with_local_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    # A port that nobody listens on.
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    return tmp_path


def cached_model(cache: Path) -> Path:
    model = cache / "models--some--model"
    folder = model / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(COMMIT)
    return folder


def test_only_a_name_that_is_no_folder_is_a_hub_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "mine").mkdir(parents=True)
    names = ["nano", "owner/name", "owner/name@v1", "models/mine", "./a/b", "/a/b", "a/b/c"]
    assert [is_hub_id(n) for n in names] == [False, True, True, False, False, False, False]


def test_a_cached_model_needs_no_hub(cache: Path) -> None:
    folder = cached_model(cache)
    config = Config.model_validate({"model": {"path": "some/model"}})
    assert Path(with_local_model(config).model.path).resolve() == folder.resolve()
    assert with_local_model(Config()) == Config()


@pytest.mark.parametrize("offline", [False, True])
def test_without_a_hub_one_line_says_what_to_do(
    cache: Path, monkeypatch: pytest.MonkeyPatch, offline: bool
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    with pytest.raises(ConfigError) as refused:
        fetch("some/model")
    said = str(refused.value)
    assert "model.path='some/model' is no folder here" in said
    assert "set model.path to it" in said
    assert "\n" not in said
    assert ("HF_HUB_OFFLINE" if offline else "http://127.0.0.1:9 does not give it") in said
