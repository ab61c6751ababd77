"""A process with a vLLM engine that samples until it is ended: ``MODEL`` as its argument.

Prints the pids of vLLM's processes once tokens come.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from spade_async.engine.vllm.engine import VllmEngine
from tests.support.vllm_world import CONTEXT, config, prompt, sampling


async def main(folder: Path) -> None:
    engine = await VllmEngine.create(folder, config(), CONTEXT)
    try:
        tasks: set[asyncio.Task[Any]] = set()
        told = False
        for seed in range(1 << 30):
            while len(tasks) >= 3:
                _, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            tasks.add(
                asyncio.create_task(engine.generate(prompt(seed), sampling(seed, tokens=300)))
            )
            await asyncio.sleep(0.01)
            if not told and engine.stats()["tokens"] > 0:
                told = True
                print(*engine.pids, flush=True)
    finally:
        await engine.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
