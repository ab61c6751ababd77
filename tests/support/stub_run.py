"""The real supervisor over stub parts: ``stub_run RUN CONFIG NAME=BEHAVIOUR... [resume]``."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from spade_async.errors import SpadeError
from spade_async.supervisor.display import make_display
from spade_async.supervisor.parts import PartCommand
from spade_async.supervisor.train import train


def main() -> int:
    run_dir, config, *behaviours = sys.argv[1:]
    resume = "resume" in behaviours
    parts = [b.split("=") for b in behaviours if "=" in b]

    def commands_for(root: Path, endpoint: str, num_generators: int) -> list[PartCommand]:
        argv = (sys.executable, "-m", "tests.support.stub_part")
        return [PartCommand(name, (*argv, what, "--run-dir", str(root))) for name, what in parts]

    display = make_display(Console())
    try:
        outcome = train(
            Path(config),
            [],
            Path(run_dir),
            resume=resume,
            display=display,
            commands_for=commands_for,
        )
    except SpadeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"END {outcome.end.line}", flush=True)
    return outcome.end.exit_code


if __name__ == "__main__":
    sys.exit(main())
