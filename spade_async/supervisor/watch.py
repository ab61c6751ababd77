"""Watch the parts of a run until it ends: by itself, by a request to stop, or by a death.

Death comes from pidfds, exactly. What a hang is, the coordinator decides; here only exits count.
"""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spade_async.config.run_folder import RunFolder
from spade_async.supervisor.death import death_line
from spade_async.supervisor.parts import Part, kill_all, stop_all, wait_for
from spade_async.supervisor.signals import Interrupts
from spade_async.telemetry.status import read_status

TICK_S = 0.5
EARLY_EXIT_GRACE_S = 4.0
"""A part may leave with 0 this long before the coordinator's status says that the run stops."""
LEAVE_S = 5.0
"""Time for the other parts to leave after the coordinator has."""
STOPPING = "finishing the step, saving; press Ctrl-C again to stop at once"

_STOPPING_STATES = frozenset({"stopping", "stopped", "finished"})


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended."""

    state: str
    """"finished", "stopped" (cleanly, on request), "interrupted" (at once) or "failed"."""
    line: str
    """One line for the user."""

    @property
    def exit_code(self) -> int:
        """Of the command: 0 done or saved, 130 stopped at once, 1 failed."""
        return {"finished": 0, "stopped": 0, "interrupted": 130}.get(self.state, 1)


def watch(
    parts: Sequence[Part],
    folder: RunFolder,
    interrupts: Interrupts,
    *,
    on_tick: Callable[[], None] = lambda: None,
    say: Callable[[str], None] = lambda line: None,
) -> RunEnd:
    """Block until the run has ended and every part is dead.

    Args:
        parts: the coordinator is the one of that name.
        folder: its status file tells how the coordinator ended.
        interrupts: requests to stop; the second kills at once.
        on_tick: called about twice a second and after each event.
        say: shows one line to the user.
    """
    is_stop_sent = False
    with selectors.DefaultSelector() as selector:
        selector.register(interrupts.fd, selectors.EVENT_READ, None)
        for part in parts:
            selector.register(part.pidfd, selectors.EVENT_READ, part)
        while True:
            on_tick()
            for key, _ in selector.select(TICK_S):
                if key.data is None:
                    interrupts.drain()
                else:
                    selector.unregister(key.fd)
                    key.data.reap()
            if interrupts.count >= 2:
                kill_all(parts)
                return _stopped_at_once(folder.root)
            if interrupts.count == 1 and not is_stop_sent:
                is_stop_sent = True
                say(STOPPING)
                _coordinator(parts).send(signal.SIGTERM)
            end = _decide(parts, folder, is_stop_sent=is_stop_sent)
            if end is not None:
                return _finish(parts, end)


def _coordinator(parts: Sequence[Part]) -> Part:
    return next(part for part in parts if part.name == "coordinator")


def _stopped_at_once(run_dir: Path) -> RunEnd:
    return RunEnd(
        "interrupted",
        f"stopped at once; go on from the last save with --resume --run-dir {run_dir}",
    )


def _decide(parts: Sequence[Part], folder: RunFolder, *, is_stop_sent: bool) -> RunEnd | None:
    """How the run ended, or None while it goes on."""
    dead = [part for part in parts if not part.is_alive]
    if not dead:
        return None
    status = read_status(folder.status)
    state = status.state if status is not None else ""
    coordinator = _coordinator(parts)
    others = [part for part in dead if part is not coordinator]
    failed = [part for part in others if part.returncode != 0]
    # A part that broke is the cause of what the coordinator did next, unless a signal hit that one.
    if failed and not (coordinator.returncode is not None and coordinator.returncode < 0):
        return RunEnd("failed", death_line(failed[0], status, folder.root))
    if coordinator.returncode is not None:
        if coordinator.returncode == 0 and state in ("finished", "stopped"):
            return RunEnd(state, _goodbye(state, folder.root))
        # Asked to stop before it could listen: the default action of SIGTERM, nothing to save.
        if is_stop_sent and coordinator.returncode in (0, -signal.SIGTERM):
            return RunEnd("stopped", _goodbye("stopped", folder.root))
        return RunEnd("failed", death_line(coordinator, status, folder.root))
    early = [p for p in others if time.monotonic() - p.died_s > EARLY_EXIT_GRACE_S]
    if early and state not in _STOPPING_STATES and not is_stop_sent:
        return RunEnd("failed", death_line(early[0], status, folder.root))
    return None


def _goodbye(state: str, run_dir: Path) -> str:
    if state == "finished":
        return f"finished; everything is in {run_dir}"
    return f"stopped and saved; go on with --resume --run-dir {run_dir}"


def _finish(parts: Sequence[Part], end: RunEnd) -> RunEnd:
    if end.state == "failed":
        stop_all(parts)
    else:
        wait_for(parts, LEAVE_S)
        kill_all(parts)
    return end
