"""The cache: whole or made again, keyed by content, made in a subprocess with progress."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path

import pytest

from spade_async.config.schema import Config
from spade_async.errors import ConfigError
from spade_async.nano import cache, prepare
from spade_async.nano.cache import WarmStartSize

TINY = WarmStartSize(steps=2, programs=2, answers=4)


def quiet(fraction: float, text: str) -> None:
    """A progress callback that does nothing."""


class CountingMaker:
    """Writes a small folder and counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, folder: Path, seed: int, size: WarmStartSize, progress: object) -> None:
        self.calls += 1
        (folder / "config.json").write_text(json.dumps({"seed": seed}))
        (folder / "model.safetensors").write_bytes(b"weights" * 100)


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "spade-async"


def test_a_whole_folder_is_used_again(cache_home: Path) -> None:
    maker = CountingMaker()
    folder = cache.make(1, TINY, quiet, maker)
    assert cache.make(1, TINY, quiet, maker) == folder == cache.find(1, TINY)
    assert folder.parent == cache_home
    assert maker.calls == 1


def test_seed_and_size_are_part_of_the_key() -> None:
    keys = {
        cache.folder_of(1, TINY),
        cache.folder_of(2, TINY),
        cache.folder_of(1, WarmStartSize(3, 2, 4)),
        cache.folder_of(1, WarmStartSize()),
    }
    assert len(keys) == 4


@pytest.mark.parametrize(
    "damage", ["changed", "missing", "no digests", "bad digests", "odd digests"]
)
def test_a_damaged_folder_is_made_again(damage: str, caplog: pytest.LogCaptureFixture) -> None:
    maker = CountingMaker()
    folder = cache.make(1, TINY, quiet, maker)
    match damage:
        case "changed":
            (folder / "model.safetensors").write_bytes(b"weights" * 99)
        case "missing":
            (folder / "config.json").unlink()
        case "no digests":
            (folder / cache.FILES).unlink()
        case "bad digests":
            (folder / cache.FILES).write_text("{")
        case _:
            (folder / cache.FILES).write_text("[]")
    with caplog.at_level(logging.WARNING):
        assert cache.make(1, TINY, quiet, maker) == folder
    assert [r.getMessage() for r in caplog.records if "damaged" in r.getMessage()]
    assert len(caplog.records) == 1
    assert maker.calls == 2
    assert cache.find(1, TINY) == folder


def test_a_maker_that_fails_leaves_nothing(cache_home: Path) -> None:
    def failing(folder: Path, seed: int, size: WarmStartSize, progress: object) -> None:
        (folder / "config.json").write_text("half")
        raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError):
        cache.make(1, TINY, quiet, failing)
    assert [path for path in cache_home.iterdir() if path.is_dir()] == []


def test_two_makers_do_the_work_once() -> None:
    maker = CountingMaker()
    threads = [threading.Thread(target=cache.make, args=(1, TINY, quiet, maker)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert maker.calls == 1


def test_a_cache_that_cannot_be_written_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="set XDG_CACHE_HOME"):
        cache.make(1, TINY, quiet, CountingMaker())


@pytest.mark.timeout(120)
def test_the_model_is_made_in_a_subprocess_with_progress_and_loads(cache_home: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from spade_async.nano.tokenizer import check_tokenizer

    seen: list[float] = []
    folder = prepare.prepare(1, lambda fraction, text: seen.append(fraction), TINY)
    assert folder == cache.find(1, TINY)
    assert seen[0] == 0.0
    assert seen[-1] == 1.0
    assert seen == sorted(seen)
    check_tokenizer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.config.head_dim == 32
    assert model.config.max_position_embeddings >= 512
    assert 500_000 < sum(p.numel() for p in model.parameters()) < 1_500_000
    logits = model(torch.tensor([tokenizer.encode("<|agent|>add 3 4<|reply|>")])).logits
    assert logits.dtype is torch.float32
    assert logits.shape[-1] == len(tokenizer)


def test_a_failed_warm_start_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no memory left\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(prepare.sys, "executable", str(broken))
    with pytest.raises(ConfigError, match="exit code 3: no memory left"):
        prepare.prepare(1, quiet, TINY)


def test_an_interrupt_ends_the_subprocess(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[prepare.subprocess.Popen[str]] = []
    original = prepare.subprocess.Popen

    def popen(*args: object, **kwargs: object) -> object:
        started.append(original(*args, **kwargs))  # type: ignore[call-overload]
        return started[0]

    def interrupted(fraction: float, text: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(prepare.subprocess, "Popen", popen)
    with pytest.raises(KeyboardInterrupt):
        prepare.prepare(1, interrupted, WarmStartSize(steps=100_000))
    assert started[0].poll() is not None


def test_the_shipped_configuration_is_valid() -> None:
    import tomllib

    path = Path(__file__).parents[3] / "configs" / "nano.toml"
    config = Config.model_validate(tomllib.loads(path.read_text()))
    assert config.model.path == "nano"
    assert config.domain.hook == "spade_async.nano.domain"
