"""Child process that makes the model of a domain, so that the supervisor never imports torch.

Run as ``python -m spade_async.supervisor.make_model``. Its report goes to a pipe, one JSON object a
line: ``{"share": 0.4, "text": "..."}`` while it works, then ``{"folder": "..."}`` or
``{"error": "..."}``. stdout and stderr are a log.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
from types import FrameType
from typing import Any

from spade_async.domain import load_domain
from spade_async.errors import SpadeError
from spade_async.telemetry import logs
from spade_async.transport import lifeline


def main(argv: list[str] | None = None) -> int:
    """Make the model and report its folder. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="spade_async.supervisor.make_model")
    parser.add_argument("--hook", required=True, help="domain module")
    parser.add_argument("--model", required=True, help="name of the model, e.g. nano")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--report-fd", type=int, required=True)
    parser.add_argument("--lifeline-fd", type=int, default=None)
    options = parser.parse_args(argv)
    logs.configure("model")
    lifeline.watch(options.lifeline_fd)
    signal.signal(signal.SIGTERM, _leave)
    os.set_inheritable(options.report_fd, False)

    def report(**fields: Any) -> None:
        os.write(options.report_fd, (json.dumps(fields) + "\n").encode())

    try:
        domain = load_domain(options.hook)
        folder = domain.prepare_model(
            options.model, options.seed, lambda share, text: report(share=share, text=text[:200])
        )
    except SpadeError as error:
        logging.getLogger(__name__).exception("the model cannot be made")
        report(error=str(error))
        return 1
    except Exception as error:  # process main: recorded and reported
        logging.getLogger(__name__).exception("the model cannot be made")
        report(error=f"making model {options.model!r}: {type(error).__name__}: {error}")
        return 1
    report(folder=None if folder is None else str(folder))
    return 0


def _leave(signum: int, frame: FrameType | None) -> None:
    """Unwind: the domain ends what it has started and removes what is half-made."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signum)


if __name__ == "__main__":
    raise SystemExit(main())
