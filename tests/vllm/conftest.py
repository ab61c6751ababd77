"""Tests of the vLLM engine: real processes of vLLM, one engine per module. Run by `.ci/vllm`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from spade_async.engine.vllm.installed import look

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
def runner() -> Iterator[asyncio.Runner]:
    """One event loop for all tests of a module: the engine lives on it."""
    with asyncio.Runner() as runner:
        yield runner
