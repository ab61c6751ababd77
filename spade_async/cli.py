"""The command line. Imports nothing heavy, so that --help is instant; each verb imports its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from spade_async.cli_corpus import app as corpus_app
from spade_async.cli_plan import plan
from spade_async.environment.text import clean
from spade_async.errors import SandboxError, SpadeError

_TRACEBACK = {"shown": False}

app = typer.Typer(
    name="spade-async",
    help=(
        "Asynchronous self-play in executable environments: one model designs tasks, learns in "
        "them, and is paid by regret.\n\n"
        "Start with:  spade-async train configs/nano.toml"
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(help="Look at configurations.", no_args_is_help=True)
app.add_typer(config_app, name="config")
app.add_typer(corpus_app, name="corpus")
app.command()(plan)

ConfigFile = Annotated[
    Path,
    typer.Argument(metavar="CONFIG", help="TOML file, e.g. configs/nano.toml; or a run's folder."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="a.b=c",
        help="Override one key; may be repeated, e.g. --set train.steps=20.",
    ),
]
Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="Run folder, e.g. runs/nano-20260101-120000.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.callback()
def _options(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; before the command.")
    ] = False,
) -> None:
    _TRACEBACK["shown"] = debug


@app.command()
def train(
    config: ConfigFile,
    set_: Sets = None,
    run_dir: Annotated[
        Path | None,
        typer.Option("--run-dir", metavar="DIR", help="Run folder; default runs/NAME-TIMESTAMP."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on after a stop, a crash or kill -9: `train RUN --resume`.",
        ),
    ] = False,
    fake_weights: Annotated[
        bool,
        typer.Option(
            "--fake-weights",
            help="Dry run: two steps with a tiny random model of the same architecture.",
        ),
    ] = False,
) -> None:
    """Train: the whole self-play loop, from the model to the end table.

    Ctrl-C once finishes the step and saves; twice stops at once. Either way nothing is left behind
    and --resume goes on. Exit code 0: finished, or stopped and saved; 1: a part died; 2: could not
    start; 130: stopped at once.
    """
    from spade_async.commands import train as command
    from spade_async.supervisor.stream import steady

    code = command.train(
        config,
        set_ or [],
        run_dir,
        resume=resume,
        fake_weights=fake_weights,
        console=Console(file=steady(sys.stdout)),
        errors=Console(file=steady(sys.stderr)),
    )
    raise typer.Exit(code)


@app.command()
def status(run: Run, json_output: Json = False) -> None:
    """Show the state of a run now: step, processes, what limits it, alerts."""
    from spade_async.commands import status as command

    command.status(run, json_output=json_output, console=Console())


@app.command()
def report(
    run: Run,
    json_output: Json = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write it as one page with curves instead."),
    ] = None,
) -> None:
    """Show what a run reached: base against trained with noise, the designer, losses and cost."""
    from spade_async.commands import report as command

    if html is not None:
        from spade_async.commands.html import write_page

        size = write_page(run, html)
        Console().print(f"{html}: {size / 1024:.0f} KiB", markup=False, soft_wrap=True)
        return
    command.report(run, as_json=json_output, console=Console())


@app.command()
def show(
    run: Run,
    env: Annotated[
        str,
        typer.Argument(
            metavar="ENV", help="Id of an environment, the start of one, best, worst or latest."
        ),
    ] = "latest",
    seed: Annotated[
        int | None,
        typer.Option(help="Seed to show; default the first where the arms differ."),
    ] = None,
    json_output: Json = False,
) -> None:
    """Show one environment: program, hint, both arms, regret, parents, tokens and their weights."""
    from spade_async.commands import show as command

    command.show(run, env, seed=seed, as_json=json_output, console=Console())


@app.command()
def export(
    run: Run,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to make.")],
    class_: Annotated[
        list[str] | None,
        typer.Option("--class", help="frontier, mastered or out_of_reach; may be repeated."),
    ] = None,
    min_regret: Annotated[float | None, typer.Option(help="Least mean regret.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many, the best.")] = None,
    one_per_skeleton: Annotated[
        bool, typer.Option("--one-per-skeleton", help="Only the best program of each shape.")
    ] = False,
    licence: Annotated[
        str | None, typer.Option(help="Of the programs, e.g. Apache-2.0; goes into pool.json.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a pool that is there.")] = False,
    json_output: Json = False,
) -> None:
    """Write a run's environments as a pool of programs that loads again, best first."""
    from spade_async.commands import export as command
    from spade_async.view.pool import Choice

    choice = Choice(
        classes=tuple(class_ or ()),
        min_regret=min_regret,
        limit=limit,
        one_per_skeleton=one_per_skeleton,
    )
    command.export(
        run, out, choice, licence=licence, replaces=force, as_json=json_output, console=Console()
    )


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN...", help="Run folders.")],
    json_output: Json = False,
) -> None:
    """Compare runs: settings that differ, speed, validity, regret, held-out levels with noise."""
    from spade_async.commands import compare as command

    command.compare(runs, as_json=json_output, console=Console())


@app.command()
def simulate(
    where: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG|RUN", help="TOML file, or the folder of a run."),
    ] = None,
    set_: Sets = None,
    bounds: Annotated[
        str, typer.Option(help='Bounds to try: "0,2,4:8"; AGENT alone has twice it for the other.')
    ] = "",
    slots: Annotated[str, typer.Option(help='engine.slots to try: "32,64".')] = "",
    generators: Annotated[str, typer.Option(help='generator.count to try: "1,2".')] = "",
    learner_speed: Annotated[str, typer.Option(help='Speeds of the learner to try: "1,2".')] = "",
    split: Annotated[
        int | None, typer.Option(help="Try every split of so many equal devices.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Learner steps to simulate.")] = None,
    seed: Annotated[int, typer.Option(help="Of the durations that are drawn.")] = 0,
    from_run: Annotated[
        Path | None, typer.Option("--from", metavar="RUN", help="Take durations from this run.")
    ] = None,
    design_s: Annotated[float | None, typer.Option(help="Mean seconds of a design.")] = None,
    episode_s: Annotated[float | None, typer.Option(help="Mean seconds of an episode.")] = None,
    learner_s: Annotated[float | None, typer.Option(help="Seconds of a learner step.")] = None,
    swap_s: Annotated[
        float | None, typer.Option(help="Seconds from a step's end to its weights in use.")
    ] = None,
    sigma: Annotated[
        float | None, typer.Option(help="Of the logarithm of both durations; default 1.")
    ] = None,
    validity: Annotated[
        float | None, typer.Option(help="Share of designs that are played; default 0.8.")
    ] = None,
    limits: Annotated[bool, typer.Option(help="Find out which option binds.")] = True,
    tables: Annotated[
        bool, typer.Option("--tables", help="Print the two tables of docs/simulate.md instead.")
    ] = False,
    json_output: Json = False,
) -> None:
    r"""What another bound, slot count or split would give, in virtual time (docs/simulate.md).

    Durations come from the options, from the configuration's \[scripted] section, or from a run,
    whose own step time is then predicted as well.
    """
    from spade_async.commands import simulate as command
    from spade_async.simulate.assumptions import Assumed

    if tables:
        command.tables()
        return
    if where is None:
        raise typer.BadParameter("name a TOML file or a run folder, or say --tables")
    options = command.Options(
        sets=set_ or [], bounds=bounds, slots=slots, generators=generators,
        learner_speeds=learner_speed, split=split, steps=steps, seed=seed, from_run=from_run,
        assumed=Assumed(
            design_s=design_s, episode_s=episode_s, learner_s=learner_s, swap_s=swap_s,
            sigma=sigma, validity=validity,
        ),
        finds_limit=limits,
    )  # fmt: skip
    command.simulate(where, options, as_json=json_output, console=Console())


@app.command()
def prompt(
    config: ConfigFile,
    set_: Sets = None,
    route: Annotated[
        str,
        typer.Option(
            help="designer (as designer.prompt says), single_turn, multi_turn, corpus, memory "
            "(as designer, with earlier games), repair, hint, agent, agent_with_hint, later_turn, "
            "validator or judge."
        ),
    ] = "designer",
    skill: Annotated[str | None, typer.Option(help="Default: first of designer.skills.")] = None,
    document: Annotated[str, typer.Option(help="A text file, or the text itself.")] = "",
    program: Annotated[
        Path | None, typer.Option(help="Program for memory, hint, validator and judge.")
    ] = None,
    thinking: Annotated[
        bool | None,
        typer.Option("--thinking/--no-thinking", help="Default: as the configuration says."),
    ] = None,
    json_output: Json = False,
) -> None:
    """Show one prompt: its messages and, with the model's tokenizer, the exact text and tokens."""
    from spade_async.commands import prompt as command

    options = command.Options(
        route=route, skill=skill, document=document, program=program, thinking=thinking
    )
    command.prompt(config, set_ or [], options, as_json=json_output, console=Console())


@app.command()
def replay(
    run: Run,
    batch: Annotated[
        str,
        typer.Argument(metavar="STEP|BATCH", help="A trained step, or a batch in RUN/quarantine."),
    ],
    json_output: Json = False,
) -> None:
    """Run a step again, alone, on the CPU; nothing in the run folder changes.

    A step that was trained: age, advantage, ratio, weight and part of the gradient of each sample,
    as long as its tokens are in the ledger. A batch that was set aside: what is not finite in it,
    by sample, environment, role, token and quantity; exit code 1 when it is finite here.
    """
    from spade_async.commands import replay as command

    reproduced = command.replay(run, batch, as_json=json_output, console=Console())
    raise typer.Exit(0 if reproduced else 1)


@app.command()
def doctor(
    json_output: Json = False,
    profiles: Annotated[
        Path | None, typer.Option(help="TOML file of jail profiles to try as well.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Argument(metavar="[CONFIG]", help="Configuration, or run folder, to check as well."),
    ] = None,
) -> None:
    """Check this machine by trying: jail layers and profiles, torch, CUDA, vLLM, disk, memory.

    Exit code 0 when a training run is possible; each thing that is missing comes with its remedy.
    """
    from spade_async.commands import doctor as command

    code = command.doctor(as_json=json_output, console=Console(), profiles=profiles, config=config)
    raise typer.Exit(code)


@app.command()
def keys(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder to make; nothing is overwritten.")
    ] = Path("keys"),
    clients: Annotated[
        str,
        typer.Option(
            metavar="N|NAME,...", help="A key for each machine: how many, or their names."
        ),
    ] = "",
) -> None:
    """Make the CURVE keys that a link over tcp between machines needs: server.key, client.key.

    With --clients each machine gets a key of its own, DIR/NAME/client.key, that can be shut out by
    itself; in a folder that has keys, these are added.
    """
    from spade_async.commands import keys as command

    command.keys(folder, clients=command.names(clients), console=Console())


@config_app.command("show")
def config_show(config: ConfigFile, set_: Sets = None) -> None:
    """Print the resolved configuration, every key with its value, as TOML."""
    from spade_async.commands import config as command

    command.show(config, set_ or [])


@app.command(
    "env",
    short_help="Work on environments by hand: env try FILE [--seed N].",
    add_help_option=False,
    context_settings={
        "allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": [],
    },
)  # fmt: skip
def env(context: typer.Context) -> None:
    """Hand everything to the commands that live with the environments.

    They import the jail; so a missing compiled module breaks this verb only.
    """
    try:
        from spade_async.commands import env as command
    except ImportError as cause:
        raise SandboxError(f"the jail cannot be imported ({cause}): pip install -e .") from cause
    command.app(args=context.args, prog_name="spade-async env")


def main() -> None:
    """Entry point: an error of ours is one red line (each) on stderr and exit code 2."""
    try:
        app()
    except SpadeError as error:
        if _TRACEBACK["shown"]:
            raise
        console = Console(stderr=True)
        for line in str(error).splitlines():
            console.print(f"error: {clean(line, 8000)}", style="red", markup=False, soft_wrap=True)
        sys.exit(2)
