"""The figures the jail is held to, as ratios within one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Goal:
    """One line of the table: `top` over `bottom`, with what passes and what the probe in C did."""

    name: str
    top: str
    bottom: str
    """Dotted key, or "" for an absolute figure."""
    unit: str
    passes: float
    stretch: float
    at_least: bool = False


_F, _F_NUMPY, _R = "limit_us.F", "limit_us.F_numpy", "limit_us.R"
_HOT = {_F: "limit_us.F_hot", _F_NUMPY: "limit_us.F_numpy_hot"}
"""F right after another clone: stands beside the ratio, for a reader who wants that one. So does
the time of one episode over it, where episodes per second are the figure."""
_LIVE_R = "limit_us.R_live_200"
"""R over many processes: what such a round trip costs when each finds the caches cold."""
_REPLY, _RATE = "first_reply_us.", "episodes_per_second_per_core."
GOALS = (
    Goal("sealed worker ready, stdlib", "ready_us.stdlib", _F, "F", 1.6, 1.25),
    Goal("sealed worker ready, numpy", "ready_us.numpy", _F_NUMPY, "F", 1.4, 1.1),
    Goal("compiled code to first reply", f"{_REPLY}code", _F, "F", 4, 3.1),
    Goal("the same with numpy", f"{_REPLY}code_numpy", _F_NUMPY, "F", 3, 2.2),
    Goal("source to first reply", f"{_REPLY}source", _F, "F", 9.5, 7.5),
    Goal("per-source template to first reply", f"{_REPLY}per_source", _F, "F", 3, 2.2),
    Goal("spare acquire", "spare_acquire_us", _R, "R", 5, 3.5),
    Goal("warmed spare + code to first reply", f"{_REPLY}spare_code", _F, "F", 1.5, 1.0),
    Goal("step, hot", "step_us.hot", _R, "R", 3, 1.7),
    Goal("step over 200 live", "step_us.live_200", _R, "R", 9, 6),
    Goal("nsjail / native, same source", f"{_REPLY}nsjail", f"{_REPLY}source", "x", 15, 25, True),
    Goal("25-step episodes/s/core, code", f"{_RATE}code", "", "/s", 500, 740, True),
    Goal("25-step episodes/s/core, per-source", f"{_RATE}per_source", "", "/s", 500, 1000, True),
    Goal("private dirty memory, used worker", "memory_kib.used", "", "KiB", 1000, 650),
)


def judged(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Each goal with what was measured: "holds", "does not hold" or "not measured"."""
    lines = []
    for goal in GOALS:
        top = _value(result, goal.top)
        bottom = _value(result, goal.bottom) if goal.bottom else 1.0
        hot_key, time = _HOT.get(goal.bottom), top
        if goal.top.startswith(_RATE):
            hot_key, time = _HOT[_F], 1e6 / top if top else None
        hot = _value(result, hot_key) if hot_key else None
        live = _value(result, _LIVE_R) if goal.bottom == _R else None
        ratio = top / bottom if top is not None and bottom else None
        verdict = "not measured"
        if ratio is not None:
            good = ratio >= goal.passes if goal.at_least else ratio <= goal.passes
            verdict = "holds" if good else "does not hold"
        lines.append(
            {
                "figure": goal.name,
                "measured": None if ratio is None else round(ratio, 3),
                "over_hot_F": None if time is None or not hot else round(time / hot, 3),
                "over_live_R": None if top is None or not live else round(top / live, 3),
                "unit": goal.unit,
                "pass": goal.passes,
                "stretch": goal.stretch,
                "at_least": goal.at_least,
                "verdict": verdict,
            }
        )
    return lines


def _value(result: dict[str, Any], key: str) -> float | None:
    value: Any = result
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, dict):
        value = value.get("median")
    return None if value is None else float(value)


def table(lines: list[dict[str, Any]]) -> str:
    """The goals as text."""
    head = f"{'figure':<38}{'measured':>13}{'pass':>10}{'stretch':>10}  {'verdict':<14}"
    head += "  over hot F / live R"
    text = [head]
    for line in lines:
        sign = ">=" if line["at_least"] else "<="
        measured = "-" if line["measured"] is None else f"{line['measured']:,.2f} {line['unit']}"
        beside = line["over_hot_F"] if line["over_live_R"] is None else line["over_live_R"]
        hot = "" if beside is None else f"  {beside:.2f}"
        text.append(
            f"{line['figure']:<38}{measured:>13}{sign + format(line['pass'], 'g'):>10}"
            f"{line['stretch']:>10g}  {line['verdict']:<14}{hot}"
        )
    return "\n".join(text)
