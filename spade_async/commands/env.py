"""``spade-async env try FILE``: put one environment file through the jail and play it by hand."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spade_async.config.agent import AgentConfig
from spade_async.config.contract import ContractConfig
from spade_async.config.schema import SandboxConfig
from spade_async.environment.contract import MAX_SOURCE_BYTES, episode_return
from spade_async.environment.pool_folder import read_pool
from spade_async.environment.session import JailUse, MeteredSession, open_session
from spade_async.environment.text import clean, one_line
from spade_async.environment.validate import ValidationReport, validate
from spade_async.errors import ConfigError, SandboxError
from spade_async.sandbox_policy import SandboxPolicy
from spade_async.types import Reply

app = typer.Typer(
    help="Work on environments by hand.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

EXIT_OK, EXIT_REJECTED, EXIT_NO_FILE, EXIT_NO_JAIL = 0, 1, 2, 3
_SHOWN_CHARS = 4000


MaxTurns = Annotated[int, typer.Option(min=1, help="Turn limit of the run it is meant for.")]
MAX_TURNS = AgentConfig().max_turns


@app.callback()
def _group() -> None:
    """Work on environments by hand."""


@app.command("try")
def try_(
    file: Annotated[Path, typer.Argument(help="Python file with one class that ends in Env.")],
    seed: Annotated[int, typer.Option(min=0, help="Instance seed that is played.")] = 0,
    max_turns: MaxTurns = MAX_TURNS,
    with_hint: Annotated[
        bool, typer.Option("--hint/--no-hint", help="Whether the program must have a hint().")
    ] = True,
) -> None:
    """Load one environment file in the jail, show each validation stage, then play it by hand.

    The file runs in the jail and nowhere else. After the stages, each line of standard input is an
    action ("?" shows the hint, end of input leaves); this also works in a pipe:

        echo 42 | spade-async env try my_env.py --seed 3

    Exit codes: 0 fine, 1 rejected or failed while playing, 2 no readable file, 3 no working jail.
    """
    source = _read(file)
    hint_mode = "environment" if with_hint else "none"
    try:
        code = asyncio.run(_try(source, seed, max_turns, hint_mode))
    except SandboxError as fault:
        _error(f"the jail does not work here: {one_line(str(fault), 600)}; try spade-async doctor")
        code = EXIT_NO_JAIL
    except KeyboardInterrupt:
        code = 130
    raise typer.Exit(code)


@app.command("check")
def check(
    folder: Annotated[Path, typer.Argument(help="Folder of programs (*.py, pool.json optional).")],
    seed: Annotated[int, typer.Option(min=0, help="Root of the instance seeds.")] = 0,
    max_turns: MaxTurns = MAX_TURNS,
    with_hint: Annotated[
        bool, typer.Option("--hint/--no-hint", help="Whether each must have a hint().")
    ] = False,
    every_check: Annotated[
        bool, typer.Option("--checks/--no-checks", help="Also the checks of contract.checks.")
    ] = True,
    profile: Annotated[str, typer.Option(help="Profile of the jail.")] = "compute",
) -> None:
    """Put every program of a folder through the jail; count the rejected by stage and name them.

    Exit codes: 0 all are valid, 1 some are not or were skipped, 2 no such folder, 3 no jail.
    """
    from spade_async.commands.env_check import check_folder

    rules = ContractConfig() if every_check else ContractConfig(checks=())
    try:
        pool = read_pool(folder)
        policy = _policy(max_turns, profile)
        code = asyncio.run(check_folder(pool, policy, seed, max_turns, with_hint, rules))
    except ConfigError as fault:
        _error(str(fault).replace("agent.pool=", "", 1))
        code = EXIT_NO_FILE
    except SandboxError as fault:
        _error(f"the jail does not work here: {one_line(str(fault), 600)}; try spade-async doctor")
        code = EXIT_NO_JAIL
    except KeyboardInterrupt:
        code = 130
    raise typer.Exit(code)


def _error(line: str) -> None:
    print(line, file=sys.stderr)


def _read(file: Path) -> str:
    """Text of the file; ends the command with one line when there is none to use."""
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_SOURCE_BYTES + 1)
        if len(data) > MAX_SOURCE_BYTES:
            problem = f"is longer than {MAX_SOURCE_BYTES} bytes: no environment may be"
        else:
            return data.decode("utf-8")
    except FileNotFoundError:
        problem = "does not exist: name a Python file with one environment"
    except IsADirectoryError:
        problem = "is a folder: name a Python file with one environment"
    except UnicodeDecodeError as cause:
        problem = f"is not UTF-8 text (byte {cause.start}): save it as UTF-8"
    except OSError as cause:
        problem = f"cannot be read ({cause.strerror or cause})"
    _error(f"{file} {problem}")
    raise typer.Exit(EXIT_NO_FILE)


def _policy(max_turns: int, profile: str = "compute") -> SandboxPolicy:
    limits = SandboxConfig()
    return SandboxPolicy(
        num_workers=2,
        spares=2,
        queue=16,
        wall_s_per_call=limits.wall_s_per_call,
        cpu_s_per_call=limits.cpu_s_per_call,
        memory_bytes=limits.memory_bytes,
        reply_bytes=limits.reply_bytes,
        max_turns=max_turns,
        profiles=(profile,),
    )


async def _try(source: str, seed: int, max_turns: int, hint_mode: str) -> int:
    # The compiled jail comes with the command, so that --help works without it.
    from spade_async.sandbox import Pool

    console = Console(highlight=False)
    async with Pool(_policy(max_turns)) as pool:
        report = await validate(
            pool,
            source,
            seed=seed,
            max_turns=max_turns,
            hint_mode=hint_mode,
            num_seeds=2,
            rules=ContractConfig(),
        )
        if report.repairs:
            kinds = ", ".join(report.repairs)
            console.print(Text(f"it did not parse and was repaired: {kinds}", style="yellow"))
        _show(console, report)
        if report.rejection is not None:
            return EXIT_REJECTED
        async with open_session(pool, report.source, seed, JailUse()) as session:
            return await _play(console, session, seed)


def _show(console: Console, report: ValidationReport) -> None:
    table = Table(box=None, pad_edge=False, show_header=True, header_style="bold")
    table.add_column("")
    table.add_column("stage")
    table.add_column("ms", justify="right")
    table.add_column("found", overflow="fold")
    for result in report.stages:
        mark = Text("✓", style="green") if result.ok else Text("✗", style="bold red")
        time_ms = f"{1000 * result.seconds:.1f}" if result.seconds else ""
        table.add_row(mark, result.stage.value, time_ms, Text(result.detail))
    console.print(table)
    rejection = report.rejection
    if rejection is not None:
        console.print(Text(f"rejected at {rejection.stage.value}", style="bold red"))


async def _play(console: Console, session: MeteredSession, seed: int) -> int:
    first = session.loaded if not session.loaded.ok else await session.reset()
    if not first.ok:
        return _failed(console, "reset", first)
    is_terminal = sys.stdin.isatty()
    console.print(Text(f"\nseed {seed}", style="bold"))
    console.print(Text(clean(first.observation, _SHOWN_CHARS)), soft_wrap=True)
    if is_terminal:
        console.print(Text('(type an action; "?" shows the hint; Ctrl-D leaves)', style="dim"))
    turn = 0
    while True:
        if is_terminal:
            console.print(Text("> ", style="bold"), end="")
        line = await asyncio.to_thread(sys.stdin.readline)
        if not line:
            console.print(Text("end of input: left before the end of the episode", style="dim"))
            return EXIT_OK
        action = line.rstrip("\r\n")
        if action.strip() == "?":
            reply = await session.hint()
            if not reply.ok:
                return _failed(console, "hint", reply)
            text = clean(reply.observation, _SHOWN_CHARS) or "none"
            console.print(Text(f"hint: {text}"), soft_wrap=True)
            continue
        turn += 1
        reply = await session.step(action)
        if not reply.ok:
            return _failed(console, f"step {turn}", reply)
        console.print(Text(clean(reply.observation, _SHOWN_CHARS)), soft_wrap=True)
        facts = f"turn {turn}  reward {reply.reward:g}  terminated {reply.terminated}"
        console.print(Text(facts + (f"  truncated {reply.truncated}" if reply.truncated else "")))
        if reply.terminated or reply.truncated:
            value = episode_return(reply.reward, terminated=reply.terminated)
            console.print(Text(f"episode return {value:g}", style="bold"))
            return EXIT_OK


def _failed(console: Console, where: str, reply: Reply) -> int:
    detail = one_line(reply.detail, 600)
    console.print(
        Text(f"{where}: {reply.outcome.value}: {detail}", style="bold red"), soft_wrap=True
    )
    return EXIT_REJECTED
