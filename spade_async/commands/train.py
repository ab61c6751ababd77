"""`spade-async train`: run the supervisor in the foreground and print the end table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from spade_async.commands.report import build_report
from spade_async.config.load import resolve
from spade_async.config.run_folder import RunFolder
from spade_async.errors import SpadeError
from spade_async.evals.tables import end_table
from spade_async.fake.folder import make as make_fake
from spade_async.fake.settings import settings as fake_settings
from spade_async.supervisor.display import make_display
from spade_async.supervisor.train import train as supervise


def train(
    config: Path,
    sets: Sequence[str],
    run_dir: Path | None,
    *,
    resume: bool,
    console: Console,
    errors: Console,
    fake_weights: bool = False,
) -> int:
    """Train and return the exit code: 0 finished or stopped and saved, 1 failed, 130 cut short."""
    if fake_weights:
        recipe = resolve(config, sets)
        sets = [*sets, *fake_settings(recipe, make_fake(recipe))]
    outcome = supervise(config, sets, run_dir, resume=resume, display=make_display(console))
    end = outcome.end
    if end.state == "failed":
        errors.print(f"error: {end.line}", style="red", markup=False, soft_wrap=True)
        return end.exit_code
    # A run that was stopped while it started has no ledger yet, and nothing to show.
    if end.state != "interrupted" and RunFolder(outcome.run_dir).ledger.exists():
        try:
            console.print(end_table(build_report(outcome.run_dir)))
        except SpadeError as error:
            # The run is over and saved; a table that cannot be made does not undo that.
            errors.print(f"no end table: {error}", style="yellow", markup=False, soft_wrap=True)
    console.print(end.line, markup=False, highlight=False, soft_wrap=True)
    return end.exit_code
