"""A part of a run that only behaves: what the supervisor has to cope with, without any model."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

from spade_async.config.run_folder import RunFolder
from spade_async.errors import EXIT_REFUSED
from spade_async.telemetry.status import RunStatus, write_status
from spade_async.transport import lifeline

STUBBORN_CHILD = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
)


def note_news(run_dir: Path) -> None:
    for line in sys.stdin:
        with (run_dir / "news").open("a") as sink:
            sink.write(line)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("behaviour")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--lifeline-fd", type=int)
    options = parser.parse_args()
    status = RunFolder(options.run_dir).status

    def leave(state: str) -> None:
        write_status(status, RunStatus(state=state, step=3))
        sys.exit(0)

    match options.behaviour:
        case "coordinate" | "finish" | "fail":
            signal.signal(signal.SIGTERM, lambda *_: leave("stopped"))
            lifeline.watch(options.lifeline_fd)
            write_status(status, RunStatus(state="running", step=1))
            if options.behaviour == "coordinate":
                Thread(target=note_news, args=(options.run_dir,), daemon=True).start()
            if options.behaviour == "finish":
                time.sleep(0.7)
                leave("finished")
            if options.behaviour == "fail":
                time.sleep(0.7)
                raise RuntimeError("the ledger is gone")
        case "work":
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            lifeline.watch(options.lifeline_fd)
        case "crash":
            time.sleep(0.7)
            raise ValueError("no room for the prompt")
        case "refuse":
            print("ConfigError: another tokenizer", file=sys.stderr)
            return EXIT_REFUSED
        case "vanish":
            return 0
        case "die_once":
            # The second one of that name works.
            mark = options.run_dir / "died"
            if not mark.exists():
                time.sleep(0.7)
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            lifeline.watch(options.lifeline_fd)
        case "die":
            time.sleep(0.7)
            os.kill(os.getpid(), signal.SIGKILL)
        case "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            argv = [sys.executable, "-c", STUBBORN_CHILD, str(options.run_dir)]
            subprocess.Popen(argv, start_new_session=True)
    print("ready", flush=True)
    time.sleep(600)
    return 0


if __name__ == "__main__":
    sys.exit(main())
