"""`spade-async plan` on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def plan(
    config: Annotated[
        Path,
        typer.Argument(
            metavar="CONFIG", help="TOML file, e.g. configs/nano.toml; or a run's folder."
        ),
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="a.b=c", help="Override one key; may be repeated."),
    ] = None,
    generator_tokens_per_s: Annotated[
        float | None, typer.Option(help="Sampled by one generator over all its slots.")
    ] = None,
    learner_tokens_per_s: Annotated[
        float | None, typer.Option(help="Trained tokens over all ranks.")
    ] = None,
    design_tokens: Annotated[float | None, typer.Option(help="Mean length of a design.")] = None,
    episode_tokens: Annotated[float | None, typer.Option(help="Mean length of an episode.")] = None,
    from_run: Annotated[
        Path | None, typer.Option("--from", metavar="RUN", help="Take what is not given from it.")
    ] = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of a table.")
    ] = False,
) -> None:
    """Work out what a configuration takes, without a GPU: devices, memory, rates, age, disk.

    Exit code 1 when it cannot run; each reason names the key to change (docs/plan.md).
    """
    from spade_async.commands import plan as command
    from spade_async.planning.rates import Rates

    given = Rates(
        generator_tokens_per_s=generator_tokens_per_s,
        learner_tokens_per_s=learner_tokens_per_s,
        design_tokens=design_tokens,
        episode_tokens=episode_tokens,
    )
    options = command.Options(sets=set_ or [], from_run=from_run, given=given)
    raise typer.Exit(command.plan(config, options, as_json=json_output, console=Console()))
