"""Tests of the vLLM engine: real processes of vLLM, one engine per module. Run by `.ci/vllm`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spade_async.engine.vllm.installed import look
from spade_async.weights.store import FileWeightStore
from tests.support.vllm_world import CONTEXT, World, config, make_model

_HERE = Path(__file__).parent
_PROBLEM = look().problem


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE not in item.path.parents:
            continue
        # Imports of vLLM and torch warn about themselves.
        item.add_marker(pytest.mark.filterwarnings("default"))
        item.add_marker(pytest.mark.timeout(900))
        if _PROBLEM is not None and "SPADE_REQUIRE_VLLM" not in os.environ:
            item.add_marker(pytest.mark.skip(reason=f"vLLM cannot run here: {_PROBLEM}"))


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The model of a module, by its `MODEL` (arguments of `make_model`), and where it publishes."""
    root = tmp_path_factory.mktemp("world")
    folder = make_model(root / "model", **getattr(request.module, "MODEL", {}))
    return World(folder, FileWeightStore(root / "weights", keep=3))


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest, runner: asyncio.Runner, world: World) -> Iterator[Any]:
    """The engine of a module, by its `ENGINE` (keys of [engine]) and its `LORA`."""
    from spade_async.engine.vllm.engine import VllmEngine

    wanted = config(**getattr(request.module, "ENGINE", {}))
    lora = getattr(request.module, "LORA", None)
    engine = runner.run(VllmEngine.create(world.folder, wanted, CONTEXT, lora=lora))
    yield engine
    runner.run(engine.close())
    assert engine.pids == []


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """One event loop for all tests of a module: the engine lives on it."""
    with asyncio.Runner() as runner:
        yield runner
