"""Watch the parts of a run until it ends: by itself, by a request to stop, or by a death.

Death comes from pidfds, exactly. A generator or learner that dies is named, told to the coordinator
and started again (`restarts.py`); a coordinator that dies ends the run. Which part hangs, the
coordinator says in its status, and of itself by a status that stays the same: it is reported, then
killed and treated as dead. Wall clocks decide nothing.
"""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spade_async.config.run_folder import RunFolder
from spade_async.config.supervisor import SupervisorConfig
from spade_async.coordinator.news import News
from spade_async.errors import EXIT_REFUSED
from spade_async.supervisor.death import cause, death_line, is_full, short_line
from spade_async.supervisor.hang_report import hang_line, write_hang_report
from spade_async.supervisor.parts import Part, kill_all, stop_all, wait_for
from spade_async.supervisor.processes import reap_adopted
from spade_async.supervisor.restarts import Restarts
from spade_async.supervisor.signals import Interrupts
from spade_async.telemetry.status import HungPart, RunStatus, read_status

TICK_S = 0.5
_OWN_PAUSE_S = 5.0
"""A turn that took longer was a pause of ours."""
EARLY_EXIT_GRACE_S = 4.0
"""A part may leave with 0 this long before the coordinator's status says that the run stops."""
LEAVE_S = 5.0
"""Time for the other parts to leave after the coordinator has."""
SAVE_S = 20.0
"""Time for the coordinator to finish the step in training when the run has to end."""
STOPPING = "finishing the step, saving; press Ctrl-C again to stop at once"

_STOPPING_STATES = frozenset({"stopping", "stopped", "finished", "failed"})


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


class Watcher:
    """One run under watch; `run` blocks until it has ended and every part is dead."""

    def __init__(
        self,
        parts: Sequence[Part],
        folder: RunFolder,
        interrupts: Interrupts,
        config: SupervisorConfig,
        respawn: Callable[[str], Part],
        *,
        on_tick: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Take over running parts.

        Args:
            parts: the coordinator is the one of that name.
            folder: its status file tells how the coordinator ended.
            interrupts: requests to stop; the second kills at once.
            config: when a dead part is started again.
            respawn: starts the part of that name.
            on_tick: called about twice a second and after each event.
            say: shows one line to the user.
        """
        self._parts = {part.name: part for part in parts}
        self._folder = folder
        self._interrupts = interrupts
        self._restarts = Restarts(config)
        self._respawn = respawn
        self._on_tick = on_tick
        self._say = say
        self._is_stop_sent = False
        self._judged: set[int] = set()
        """Pids of dead parts that were told and decided upon."""
        self._due_s: dict[str, float] = {}
        """Part -> monotonic second of its restart."""
        self._selector = selectors.DefaultSelector()
        self._config = config
        self._reported: dict[str, int] = {}
        """Part -> pid whose hang was reported; forgotten when it moves again."""
        self._hung_causes: dict[int, str] = {}
        self._word: tuple[float | None, float] = (None, time.monotonic())
        """The coordinator's newest status, by its stamp, and when we first saw it."""
        self._turn_s = time.monotonic()

    @property
    def parts(self) -> list[Part]:
        """The newest part of each name."""
        return list(self._parts.values())

    def run(self) -> RunEnd:
        """Block until the run has ended and every part is dead."""
        with self._selector:
            self._selector.register(self._interrupts.fd, selectors.EVENT_READ, None)
            for part in self.parts:
                self._selector.register(part.pidfd, selectors.EVENT_READ, part)
            while True:
                end = self._turn()
                if end is not None:
                    return self._finish(end)

    def _turn(self) -> RunEnd | None:
        self._on_tick()
        for key, _ in self._selector.select(self._pause_s()):
            if key.data is None:
                self._interrupts.drain()
            else:
                self._selector.unregister(key.fd)
                # What it leaves in its group goes with it, while the group's id is still its own.
                key.data.kill_group()
                key.data.reap()
        reap_adopted({part.pid for part in self.parts if part.is_alive})
        if self._interrupts.count >= 2:
            kill_all(self.parts)
            return _stopped_at_once(self._folder.root)
        if self._interrupts.count == 1 and not self._is_stop_sent:
            self._is_stop_sent = True
            self._say(STOPPING)
            self._coordinator.send(signal.SIGTERM)
        status = read_status(self._folder.status)
        if status is not None:
            self._restarts.note_step(status.step)
        end = self._end_of_coordinator(status)
        for part in self.parts:
            if end is None and not part.is_alive and part is not self._coordinator:
                end = self._take_death(part, status)
        if end is None:
            end = self._look_for_hangs(status)
        if end is None and not self._is_stop_sent:
            self._start_due()
        return end

    def _look_for_hangs(self, status: RunStatus | None) -> RunEnd | None:
        """Report each hang once, then do what `supervisor.on_hang` says."""
        hung = self._coordinator_hangs(status) or ([] if status is None else status.hung)
        living = {part.name: part for part in self.parts if part.is_alive}
        # A status may speak of a part that is dead by now, or of the one before.
        hung = [h for h in hung if h.name in living and h.pid in (None, living[h.name].pid)]
        self._reported = {h.name: self._reported.get(h.name, 0) for h in hung}
        news = [h for h in hung if self._reported[h.name] != living[h.name].pid]
        if not news:
            return None
        pids = {name: part.pid for name, part in living.items()}
        report = write_hang_report(self._folder, hung, status, pids)
        for h in news:
            self._reported[h.name] = pids[h.name]
            self._say(f"{hang_line(h)}; see {report}")
        if self._config.on_hang == "report":
            return None
        first = news[0]
        if self._config.on_hang == "stop" or first.name == "coordinator":
            if first.name == "coordinator":
                self._coordinator.kill_group()
            advice = f"see {report}; go on with spade-async train {self._folder.root} --resume"
            return RunEnd("failed", f"{hang_line(first)}; {advice}")
        for h in news:
            kind = "learner" if h.name == "learner" else "generator"
            self._hung_causes[pids[h.name]] = f"{kind} hangs in state {h.state}"
            living[h.name].kill_group()
        return None

    def _coordinator_hangs(self, status: RunStatus | None) -> list[HungPart]:
        """The coordinator cannot say that it hangs: its status stays the same."""
        now_s = time.monotonic()
        stamp, since_s = self._word
        paused_s, self._turn_s = now_s - self._turn_s, now_s
        if paused_s > _OWN_PAUSE_S:
            # It was us who stood still.
            since_s += paused_s
        newest = None if status is None else status.updated_s
        if newest != stamp or is_full(self._folder.root):
            since_s = now_s
        self._word = (newest, since_s)
        is_starting = status is None or status.state == "starting"
        limit_s = self._config.starting_s if is_starting else self._config.silent_s
        if now_s - since_s <= limit_s or not self._coordinator.is_alive:
            return []
        state = "starting" if is_starting else "silent"
        seconds = now_s - since_s
        return [HungPart(name="coordinator", state=state, seconds=seconds, limit_s=limit_s)]

    def _pause_s(self) -> float:
        due_s = min(self._due_s.values(), default=float("inf")) - time.monotonic()
        return min(TICK_S, max(due_s, 0.0))

    @property
    def _coordinator(self) -> Part:
        return self._parts["coordinator"]

    def _end_of_coordinator(self, status: RunStatus | None) -> RunEnd | None:
        """How the run ended when its coordinator is dead; None while that lives."""
        code = self._coordinator.returncode
        if code is None:
            return None
        state, root = status.state if status is not None else "", self._folder.root
        if code == 0 and state in ("finished", "stopped"):
            return RunEnd(state, _goodbye(state, root))
        # Asked to stop before it could listen: the default action of SIGTERM, nothing to save.
        if self._is_stop_sent and code in (0, -signal.SIGTERM):
            return RunEnd("stopped", _goodbye("stopped", root))
        return RunEnd("failed", death_line(self._coordinator, status, root))

    def _take_death(self, part: Part, status: RunStatus | None) -> RunEnd | None:
        """Decide upon a dead generator or learner, once: a restart, or the end of the run."""
        if part.pid in self._judged:
            return None
        is_ending = self._is_stop_sent or (status and status.state in _STOPPING_STATES)
        if is_ending:
            self._judged.add(part.pid)
            self._tell(part, status, None, cause(part, status))
            return None
        if part.returncode == 0 and time.monotonic() - part.died_s < EARLY_EXIT_GRACE_S:
            return None
        self._judged.add(part.pid)
        why = self._hung_causes.pop(part.pid, None) or cause(part, status)
        pause_s = None if part.returncode == EXIT_REFUSED else self._restarts.died(why)
        self._tell(part, status, pause_s, why)
        if pause_s is None:
            line = death_line(part, status, self._folder.root)
            count = self._restarts.count(why)
            if count > 1:
                line = f"{count} deaths from one cause without a step between: {line}"
            return RunEnd("failed", line)
        self._say(f"{short_line(part, status)}; it is started again in {pause_s:.1f} s")
        self._due_s[part.name] = time.monotonic() + pause_s
        return None

    def _tell(self, part: Part, status: RunStatus | None, pause_s: float | None, why: str) -> None:
        news = News(part.name, short_line(part, status), pause_s, why, part.died_s)
        self._coordinator.tell(news.line())

    def _start_due(self) -> None:
        now_s = time.monotonic()
        for name in [name for name, due_s in self._due_s.items() if due_s <= now_s]:
            del self._due_s[name]
            part = self._parts[name] = self._respawn(name)
            self._selector.register(part.pidfd, selectors.EVENT_READ, part)

    def _finish(self, end: RunEnd) -> RunEnd:
        if end.state != "failed":
            wait_for(self.parts, LEAVE_S)
            kill_all(self.parts)
            return end
        if self._coordinator.is_alive:
            # The step in training is finished and saved, as at a stop that was asked for.
            self._say(end.line)
            self._coordinator.send(signal.SIGTERM)
            wait_for([self._coordinator], SAVE_S)
        stop_all(self.parts)
        return end


def _stopped_at_once(run_dir: Path) -> RunEnd:
    return RunEnd(
        "interrupted",
        f"stopped at once; go on from the last save with spade-async train {run_dir} --resume",
    )


def _goodbye(state: str, run_dir: Path) -> str:
    if state == "finished":
        return f"finished; everything is in {run_dir}"
    return f"stopped and saved; go on with spade-async train {run_dir} --resume"
