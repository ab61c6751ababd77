"""Whole episodes of 25 steps: per second and core, on two cores, beside torch; memory of a jail.

An episode is created, loaded, reset, stepped 25 times and ended by one thread; the refill of the
spares runs on the same CPU and is counted. How it is measured: `docs/bench_sandbox.md`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benches.ladder import beside, episode, memory
from benches.ladder.files import room
from benches.ladder.plan import Plan
from benches.ladder.row import Unavailable


def run(quick: bool, source: Path | None = None) -> dict[str, Any]:
    """Measure; the same core figures as in `benches sandbox`, and what only matters here.

    Args:
        quick: two seconds instead of thirty.
        source: a file with one class that ends in Env, played instead of the built-in game.
    """
    plan = Plan(quick)
    if source is not None:
        text = source.read_text()
        plan = Plan(quick, source=text, numpy_source=text, own_source=True)
    room(4096)
    load_before = os.getloadavg()[0]
    result = core_figures(plan)
    seconds = _seconds(plan)
    variant = "code" if result["episodes_per_second_per_core"]["code"] else "source"
    result["scaling"] = attempt(lambda: scaling(plan, variant, seconds))
    result["beside_torch"] = attempt(lambda: beside.measure(plan, seconds / 3))
    result["density"] = attempt(lambda: memory.per_gib(plan, plan.num_live))
    result["run"] = {"load_before": load_before, "load_after": os.getloadavg()[0]}
    return result


def core_figures(plan: Plan) -> dict[str, Any]:
    """Episodes per second and core of each variant, and KiB of an idle and a used worker."""
    rates = {
        variant: attempt(lambda v=variant: episode.rate(v, plan, _seconds(plan)))  # type: ignore[misc]
        for variant in episode.VARIANTS
    }
    kib = {numpy: attempt(lambda n=numpy: memory.of_workers(plan, n)) for numpy in (False, True)}  # type: ignore[misc]
    return {
        "episodes_per_second_per_core": {
            variant: rate.get("per_second") for variant, rate in rates.items()
        },
        "episodes": rates,
        "memory_kib": {
            "idle": kib[False].get("idle", {}).get("private_dirty"),
            "used": kib[False].get("used", {}).get("private_dirty"),
            "idle_numpy": kib[True].get("idle", {}).get("private_dirty"),
            "used_numpy": kib[True].get("used", {}).get("private_dirty"),
        },
        "memory": {"stdlib": kib[False], "numpy": kib[True]},
    }


def scaling(plan: Plan, variant: str, seconds: float) -> dict[str, Any]:
    """Episodes per second of one pool on one CPU and on two.

    Raises:
        Unavailable: there is one CPU only.
    """
    if len(os.sched_getaffinity(0)) < 2:
        raise Unavailable("needs two CPUs")
    one = episode.rate(variant, plan, seconds / 2)
    two = episode.rate(variant, plan, seconds / 2, num_cpus=2)
    return {
        "variant": variant,
        "one": one,
        "two": two,
        "times": two["per_second"] / one["per_second"],
    }


def attempt(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Figures, or under "missing" the reason why there are none."""
    try:
        return measure()
    except Unavailable as reason:
        return {"missing": str(reason)}
    except Exception as error:
        return {"missing": f"failed: {type(error).__name__}: {error}"[:300]}


def failures(result: dict[str, Any]) -> list[str]:
    """Figures that broke, as opposed to those that are not there."""
    parts = {**result["episodes"], **result["memory"]}
    parts |= {name: result.get(name, {}) for name in ("scaling", "beside_torch", "density")}
    found = {name: part.get("missing", "") for name, part in parts.items()}
    return [f"{name}: {why}" for name, why in found.items() if why.startswith("failed: ")]


def _seconds(plan: Plan) -> float:
    return 2.0 if plan.quick else 30.0


def core_table(result: dict[str, Any]) -> str:
    """Episodes and memory as text."""
    lines = [f"{'25-step episodes on one CPU':<30}{'per second':>11}{'CPU ms each':>13}{'n':>8}"]
    for variant, rate in result["episodes"].items():
        if "missing" in rate:
            lines.append(f"{variant:<30}{rate['missing']}")
            continue
        lines.append(
            f"{variant:<30}{rate['per_second']:>11.0f}{rate['cpu_ms_per_episode']:>13.3f}"
            f"{rate['episodes']:>8}"
        )
    for name, kib in result["memory"].items():
        if "missing" in kib:
            lines.append(f"memory, {name}: {kib['missing']}")
            continue
        idle, used = kib["idle"], kib["used"]
        lines.append(
            f"memory, {name}: private dirty {idle['private_dirty']:.0f} KiB idle, "
            f"{used['private_dirty']:.0f} KiB after 25 steps, page tables "
            f"{used['page_tables']:.0f} KiB"
        )
    return "\n".join(lines)


def table(result: dict[str, Any]) -> str:
    """All figures as text."""
    lines = [core_table(result)]
    two = result["scaling"]
    if "missing" in two:
        lines.append(f"two cores: {two['missing']}")
    else:
        lines.append(
            f"two cores ({two['variant']}): {two['one']['per_second']:.0f} -> "
            f"{two['two']['per_second']:.0f} per second, {two['times']:.2f} times"
        )
    torch = result["beside_torch"]
    if "missing" in torch:
        lines.append(f"beside torch: {torch['missing']}")
    else:
        for name in ("step_us", "first_reply_spare_source_us"):
            alone, busy = torch["alone"][name], torch["beside_torch"][name]
            lines.append(
                f"{name} alone {alone['median']:.1f} (p99 {alone['p99']:.1f}), beside torch "
                f"{busy['median']:.1f} (p99 {busy['p99']:.1f})"
            )
        updates = torch["torch_updates_per_s"]
        lines.append(
            f"torch updates/s alone {updates['alone']:.0f}, beside the jail "
            f"{updates['beside_jail']:.0f}"
        )
    density = result["density"]
    if "missing" in density:
        lines.append(f"jails per GiB: {density['missing']}")
    else:
        lines.append(
            f"{density['jails_per_gib']:.0f} used jails per GiB ({density['kib_each']:.0f} KiB "
            f"each, kernel memory included, n={density['num']})"
        )
    return "\n".join(lines)
