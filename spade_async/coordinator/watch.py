"""What the parts of the run say of themselves: rates, idle shares, status and the limiting factor.

Works from heartbeats and counters only; decides nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from spade_async.coordinator.core import Core
from spade_async.coordinator.hangs import Hangs
from spade_async.coordinator.jail_totals import JailTotals
from spade_async.telemetry.limits import LimitFactors, limiting
from spade_async.telemetry.silence import Silence, sentence
from spade_async.telemetry.status import HungPart, ProcessStatus, RunStatus
from spade_async.transport.messages import Heartbeat


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """How the engines decoded over one learner step; means over the generators."""

    active: float
    """Requests in a decode step."""
    tokens_per_s: float
    """Tokens per second of decoding, per generator."""


DISK_FULL = "disk_full"
"""State of a part that waits for room on the disk."""


class Watch:
    """Newest heartbeat per part, and differences since the last learner step."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._beats: dict[str, Heartbeat] = {}
        self._at_step: dict[str, dict[str, float]] = {}
        self._bound_wait_s = 0.0
        self._bound_since_s: float | None = None
        self._step_s = time.monotonic()
        self.idle_shares: dict[str, float] = {}
        self.bound_wait_share: float | None = None
        self.engine_load: EngineLoad | None = None
        """Of the last learner step; None while engines tell nothing."""
        self._told_level = False
        self._jails: dict[str, str] = {}
        self._jail_news = False
        self._jail = JailTotals()
        generators = [f"gen-{i}" for i in range(core.config.generator.count)]
        self._silence = Silence([*generators, "learner"])
        self.hangs = Hangs(
            core.config.supervisor,
            [*generators, "learner"],
            longest_call_s=core.config.sandbox.wall_s_per_call,
        )
        self._told_hangs: set[str] = set()
        self._dead: dict[str, str] = {}
        self.failure: str | None = None

    def heartbeat(self, beat: Heartbeat) -> None:
        """Keep the newest word of a part; totals of idle and busy time go to the counters."""
        config = self._core.config
        before = self._beats.get(beat.name)
        self._beats[beat.name] = beat
        self._tell_of_room(beat, before)
        self._silence.heard(beat.name)
        self.hangs.beat(beat.name, beat.state, beat.progress)
        is_jailed = not config.is_scripted or config.scripted.jail
        if is_jailed and beat.metrics.get("jail_full") == 0.0 and not self._told_level:
            self._told_level = True
            self._core.alert("the jail runs below its full level", kind="jail_level")
        if not beat.name.startswith("gen-"):
            return
        self._jail.add({} if before is None else before.metrics, beat.metrics)
        if beat.jail and self._jails.get(beat.name) != beat.jail:
            self._jails[beat.name] = beat.jail
            self._jail_news = True
        for key in ("engine_busy_s", "engine_idle_s"):
            now = beat.metrics.get(key)
            if now is None:
                continue
            then = 0.0 if before is None else before.metrics.get(key, 0.0)
            # Counters hold integers: microseconds keep enough of a second.
            self._core.counters[f"generator_{key[7:-2]}_us"] += int(max(now - then, 0.0) * 1e6)

    def _tell_of_room(self, beat: Heartbeat, before: Heartbeat | None) -> None:
        """A part that waits for room on its disk (which may be another one than ours)."""
        was_full = before is not None and before.state == DISK_FULL
        if beat.state == DISK_FULL and not was_full:
            self._core.alert(f"{beat.name} waits for {beat.waits_for}", kind="disk_full")
        elif was_full and beat.state != DISK_FULL:
            self._core.alert(f"{beat.name} found room on the disk and goes on", kind="disk_room")

    @property
    def beats(self) -> list[Heartbeat]:
        """Newest heartbeat of each part."""
        return list(self._beats.values())

    def died(self, name: str, then: str) -> None:
        """A part is dead: its last word says nothing any more."""
        self._beats.pop(name, None)
        self._at_step.pop(name, None)
        self._silence.expect(name)
        self.hangs.died(name)
        self._dead[name] = then

    def back(self, name: str) -> None:
        """It is there again."""
        self.died(name, "")
        del self._dead[name]
        self.hangs.expect(name)
        if (self.failure or "").startswith(f"{name}: "):
            self.failure = None

    def jail_text(self) -> str | None:
        """What confines each generator, as Markdown; None when nothing is new since the last."""
        if not self._jail_news:
            return None
        self._jail_news = False
        return "\n".join(f"* {name}: {text}" for name, text in sorted(self._jails.items()))

    def bound_holds(self, held: bool) -> None:
        """Whether the staleness bound, and not want of work or credit, lets no task out now."""
        now = time.monotonic()
        if self._bound_since_s is not None:
            self._bound_wait_s += now - self._bound_since_s
        self._bound_since_s = now if held else None

    def step(self) -> dict[str, float]:
        """Rates since the last step, by tag."""
        now = time.monotonic()
        span = max(now - self._step_s, 1e-9)
        found: dict[str, float] = {}
        busy = idle = tokens = active = decodes = 0.0
        for name, beat in self._beats.items():
            if not name.startswith("gen-"):
                continue
            before = self._at_step.get(name, {})
            busy += beat.metrics.get("engine_busy_s", 0.0) - before.get("engine_busy_s", 0.0)
            idle += beat.metrics.get("engine_idle_s", 0.0) - before.get("engine_idle_s", 0.0)
            tokens += beat.metrics.get("tokens", 0.0) - before.get("tokens", 0.0)
            active += beat.metrics.get("active", 0.0)
            decodes += beat.metrics.get("decode_steps", 0.0) - before.get("decode_steps", 0.0)
            for key in ("engine_deaths", "failed_updates", "resubmitted_requests"):
                if key in beat.metrics:
                    tag = f"generator/{key}"
                    found[tag] = found.get(tag, 0.0) + beat.metrics[key]
            self._at_step[name] = dict(beat.metrics)
            for key in ("jail_p50_s", "jail_p99_s"):
                if key in beat.metrics:
                    found[f"jail/{key[5:]}"] = beat.metrics[key]
            found["generator/active"] = active
        if busy + idle > 0:
            self.idle_shares["generator"] = found["generator/idle_share"] = idle / (busy + idle)
            found["generator/tokens_per_s"] = tokens / span
        known = busy > 0 and decodes > 0
        self.engine_load = EngineLoad(tokens / decodes, tokens / busy) if known else None
        found |= self._jail.flush()
        self.bound_wait_share = min(self._bound_wait_s / span, 1.0)
        self._bound_wait_s, self._step_s = 0.0, now
        return found

    def limited_by(self) -> str:
        """The sentence of `telemetry.limits`, unless a disk is full or nobody takes a task."""
        for beat in self._beats.values():
            if beat.state == DISK_FULL:
                return f"disk: {beat.name} waits for {beat.waits_for}; free some space"
        dispatcher = self._core.dispatcher
        if dispatcher.is_out_of_credit:
            return (
                f"credit: no generator takes a task (all give a credit of 0), "
                f"{dispatcher.num_waiting} tasks wait"
            )
        config = self._core.config
        return limiting(
            LimitFactors(
                learner_idle_share=self.idle_shares.get("learner"),
                generator_idle_share=self.idle_shares.get("generator"),
                bound_wait_share=self.bound_wait_share,
                jail_queue=self._jail_queue(),
                agent_bound=config.async_.bounds[0],
                generators=config.generator.count,
                workers=config.sandbox.workers,
            )
        )

    def _coordinator(self, pids: dict[str, int]) -> ProcessStatus:
        return ProcessStatus(
            name="coordinator",
            pid=pids.get("coordinator"),
            state="working",
            waits_for=self._core.waits_for,
        )

    def _jail_queue(self) -> float | None:
        """Calls that wait for a free worker now, over all generators; None when unknown."""
        beats = [beat for name, beat in self._beats.items() if name.startswith("gen-")]
        waiting = [b.metrics["jail_waiting"] for b in beats if "jail_waiting" in b.metrics]
        return sum(waiting) if waiting else None

    def _hung(self, pids: dict[str, int]) -> list[HungPart]:
        """Parts that hang now; each is told once until it moves again."""
        found = self.hangs.found()
        for hung in found:
            hung.pid = pids.get(hung.name)
            if hung.name not in self._told_hangs:
                text = f"{hung.name} hangs ({hung.state}) for {hung.seconds:.0f} s"
                self._core.alert(text, kind="part_hangs")
                self._core.counters["hangs"] += 1
        self._told_hangs = {hung.name for hung in found}
        return found

    def status(self, state: str, metrics: dict[str, float], pids: dict[str, int]) -> RunStatus:
        """The record that display and `status` show."""
        core = self._core
        silent = self._silence.silent()
        processes = [
            ProcessStatus(
                name=name,
                pid=pids.get(name),
                state="silent" if name in silent else beat.state,
                waits_for=beat.waits_for,
                oldest_wait_s=max(beat.oldest_wait_s, silent.get(name, 0.0)),
            )
            for name, beat in sorted(self._beats.items())
        ]
        processes += [
            ProcessStatus(name=name, state="dead", waits_for=then)
            for name, then in sorted(self._dead.items())
        ]
        oldest = core.dispatcher.oldest()
        processes.insert(0, self._coordinator(pids))
        return RunStatus(
            state=state,
            step=core.step,
            steps=core.config.train.steps,
            policy_version=f"{core.branch}.{core.step}",
            processes=processes,
            episodes_per_hour=core.window.episodes_per_hour(),
            oldest_wait_seconds=None if oldest is None else oldest[1],
            oldest_item=_item(oldest, core.waits_for),
            hung=self._hung(pids),
            limited_by=sentence(silent) or self.limited_by(),
            alerts=list(core.alerts.recent)[-20:],
            alarms=core.guards.active,
            metrics=metrics,
            failure=self.failure,
            is_scripted=core.config.is_scripted,
            is_fake=core.config.run.fake_weights,
        ).stamp()


def _item(oldest: tuple[str, float] | None, waits_for: str) -> str:
    out = "" if oldest is None else f"task {oldest[0]}, out for {oldest[1]:.0f} s"
    step = f"the next step waits for {waits_for}" if waits_for else ""
    return "; ".join(filter(None, (out, step)))
