"""``spade-async env check FOLDER``: which programs of a pool the jail finds valid."""

from __future__ import annotations

import asyncio
from collections import Counter

from rich.console import Console
from rich.text import Text

from spade_async.config.contract import ContractConfig
from spade_async.environment.pool_folder import PoolFolder, PoolProgram
from spade_async.environment.text import one_line
from spade_async.environment.validate import ValidationReport, validate
from spade_async.sandbox_policy import SandboxPolicy

AT_ONCE = 4
"""Programs validated together."""


async def check_folder(
    folder: PoolFolder,
    policy: SandboxPolicy,
    seed: int,
    max_turns: int,
    with_hint: bool,
    rules: ContractConfig,
) -> int:
    """Validate all programs, print what is wrong as it is found and a summary. The exit code.

    Raises:
        SandboxError: the jail failed.
    """
    from spade_async.sandbox import Pool

    console = Console(highlight=False, soft_wrap=True)
    for file, reason in folder.skipped:
        console.print(Text(f"skipped   {file}: {reason}", style="yellow"))
    for note in folder.notes:
        console.print(Text(note, style="yellow"))
    stages: Counter[str] = Counter()
    repaired = 0
    places = asyncio.Semaphore(AT_ONCE)

    async with Pool(policy) as pool:

        async def one(program: PoolProgram) -> tuple[PoolProgram, ValidationReport]:
            async with places:
                own = with_hint and program.hint_mode in (None, "environment")
                report = await validate(
                    pool,
                    program.source,
                    seed=seed,
                    max_turns=max_turns,
                    hint_mode="environment" if own else "none",
                    rules=rules,
                )
                return program, report

        for done in asyncio.as_completed([one(program) for program in folder.programs]):
            program, report = await done
            rejection = report.rejection
            repaired += rejection is None and bool(report.repairs)
            if rejection is not None:
                stages[rejection.stage.value] += 1
                text = f"{rejection.stage.value:<9} {one_line(program.file)}: {rejection.reason}"
                console.print(Text(text, style="red"))
    rejected = sum(stages.values())
    valid = len(folder.programs) - rejected
    console.print(Text(f"{valid} valid", style="bold green" if not rejected else "bold"))
    if repaired:
        console.print(f"{repaired} of them only after a repair of their text")
    if rejected:
        by_stage = ", ".join(f"{stage} {count}" for stage, count in sorted(stages.items()))
        console.print(Text(f"{rejected} rejected: {by_stage}", style="bold red"))
    if folder.skipped:
        console.print(Text(f"{len(folder.skipped)} skipped", style="bold yellow"))
    return 1 if rejected or folder.skipped else 0
