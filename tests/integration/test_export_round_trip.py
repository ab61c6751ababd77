"""An exported pool is what the run had: same digests, and every program passes the jail."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

from rich.console import Console

from spade_async.commands.export import export
from spade_async.environment.pool_folder import read_pool
from spade_async.environment.validate import validate
from spade_async.sandbox import Pool, SandboxPolicy
from spade_async.view.pool import Choice
from tests.support.viewed_run import BOTH_WIN, HINT_HELPS, RunMaker


def test_exported_programs_load_again_and_pass_the_jail(tmp_path: Path) -> None:
    maker = RunMaker(tmp_path / "run")
    made = {maker.environment([HINT_HELPS, BOTH_WIN]) for _ in range(3)}
    out = tmp_path / "pool"
    console = Console(file=io.StringIO())
    export(maker.close(), out, Choice(), licence="MIT", replaces=False, as_json=False,
           console=console)  # fmt: skip
    entries = json.loads((out / "pool.json").read_text())
    pool = read_pool(out)
    assert (pool.skipped, pool.notes) == ((), ())
    assert [(p.file, p.sha256) for p in pool.programs] == [
        (e["file"], e["sha256"]) for e in entries
    ]
    assert {p.environment_id for p in pool.programs} == made
    first, entry = pool.programs[0], entries[0]
    assert (first.regret, first.mean_with_hint, first.skill, first.run, first.licence) == (
        entry["regret"], entry["mean_with_hint"], "Arithmetic", "run", "MIT",
    )  # fmt: skip
    sources = [program.source for program in pool.programs]

    async def check() -> list[str | None]:
        policy = SandboxPolicy(num_workers=2, spares=1, max_turns=4)
        async with Pool(policy) as pool:
            reports = [
                await validate(pool, s, seed=1, max_turns=4, hint_mode="environment", num_seeds=2)
                for s in sources
            ]
        return [None if r.rejection is None else r.rejection.reason for r in reports]

    assert asyncio.run(check()) == [None] * 3
