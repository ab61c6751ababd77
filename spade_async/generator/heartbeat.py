"""What a generator tells about itself once a second: state, progress and figures.

The event loop takes the figures (`Vitals.take`), the heartbeat thread only reads the last ones: a
loop that hangs is seen as a progress counter that stands still, and the thread never touches the
engine or the jail.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from spade_async.generator.context import GeneratorContext
from spade_async.generator.jail_figures import JailFigures, JailRecord, level_text
from spade_async.types import PolicyVersion

_NUM_LATENCIES = 8192
_ENGINE_NAMES = {"busy_s": "engine_busy_s", "idle_s": "engine_idle_s"}


class Vitals:
    """Figures of one generator; `take` in the event loop, `snapshot` from any thread."""

    def __init__(self) -> None:
        self.state = "starting"
        """"starting", "idle", "working", "asleep", "loading_weights", "stopping"; the process sets
        the phases, `take` tells idle, working and asleep apart."""
        self.waits_for = "the coordinator's welcome and the model"
        self._progress = 0
        self._oldest_s = 0.0
        self._metrics: dict[str, float] = {}
        self._record, self._jail = JailRecord(), ""
        self._taken_s = time.monotonic()
        self._latencies: deque[float] = deque(maxlen=_NUM_LATENCIES)

    def take(
        self, context: GeneratorContext, jail: JailFigures, *, is_asleep: bool = False
    ) -> None:
        """Read all figures now.

        Args:
            context: of the generator.
            jail: what it did.
            is_asleep: whether the learner has the device.
        """
        counters, engine = context.counters, context.player.engine.stats()
        capabilities = jail.capabilities
        self._jail = level_text(capabilities)
        self._latencies.extend(jail.drain_latencies())
        metrics = {_ENGINE_NAMES.get(name, name): float(v) for name, v in engine.items()}
        metrics |= {
            "tasks_running": float(len(counters.running)),
            "tasks_done": float(counters.tasks_done),
            "episodes": float(counters.episodes_done),
            "designs": float(counters.designs_done),
            "missing": float(counters.missing),
            "jail_calls": float(counters.jail.calls),
            "jail_wall_s": counters.jail.wall_s,
            "jail_busy": float(counters.jail.busy),
            "jail_full": float(capabilities.get("level") == "strict"),
        }
        metrics |= self._record.take(jail)
        for outcome, count in counters.jail.outcomes.items():
            metrics[f"jail_outcome_{outcome}"] = float(count)
        if self._latencies:
            metrics["jail_p50_s"] = _quantile(self._latencies, 0.50)
            metrics["jail_p99_s"] = _quantile(self._latencies, 0.99)
        if self.state in ("idle", "working", "asleep"):
            # Held back until newer weights come: it waits for others, and need not move.
            is_working = len(counters.running) > context.gate.num_waiting
            self.state = "working" if is_working else "idle"
            self.waits_for = _waits_for(context, engine)
            if is_asleep:
                self.state, self.waits_for = "asleep", "the device, which the learner has"
        self._metrics = metrics
        self._progress = int(
            engine.get("tokens", 0)
            + counters.jail.calls
            + counters.tasks_started
            + counters.tasks_done
            + counters.episodes_done
        )
        self._oldest_s = counters.oldest_task_s()
        self._taken_s = time.monotonic()

    def snapshot(self) -> dict[str, Any]:
        """Fields of the heartbeat; the age of the figures counts as waiting."""
        age_s = time.monotonic() - self._taken_s
        return {
            "state": self.state,
            "waits_for": self.waits_for,
            "progress": self._progress,
            "oldest_wait_s": self._oldest_s + age_s if self._oldest_s > 0.0 else 0.0,
            "jail": self._jail,
            "metrics": self._metrics,
        }


def _waits_for(context: GeneratorContext, engine: Mapping[str, float]) -> str:
    if not context.counters.running:
        return "tasks"
    if engine.get("active", 0.0) or engine.get("waiting", 0.0):
        return "the engine"
    loaded = context.gate.loaded
    version = PolicyVersion.unpack(loaded) if loaded >= 0 else "none"
    return f"newer weights than {version}" if context.gate.num_waiting else "the jail"


def _quantile(values: deque[float], share: float) -> float:
    """Nearest-rank quantile, seconds."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
