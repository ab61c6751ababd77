"""The age at which each correction rule breaks, on a delayed bandit and a delayed token MDP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benches.offpolicy import drawing

AGES = (0, 1, 2, 4, 8, 16, 32)
HOLDS = 0.9
"""Share of the on-policy score from which a rule counts as holding."""


def run(quick: bool, draw: Path | None = None) -> dict[str, Any]:
    """Every rule x every age; seconds when quick, a few minutes on one core otherwise."""
    import torch

    from benches.offpolicy.delayed import Setting, learn
    from spade_async.config.correction import RULES, CorrectionConfig, parameters
    from spade_async.grpo.correction import make_rule

    torch.set_num_threads(1)
    num_seeds, steps = (2, 20) if quick else (12, 150)
    settings = {
        "bandit": Setting(1, 10, steps, groups=8, group_size=4, lr=4.0, noise=0.5, pull=0.5),
        "mdp": Setting(5, 3, steps, groups=8, group_size=4, lr=4.0, noise=0.5, pull=0.2),
    }
    ages = torch.tensor([age for age in AGES for _ in range(num_seeds)])
    seeds = torch.tensor([seed for _ in AGES for seed in range(num_seeds)])
    worlds: dict[str, Any] = {}
    for world, setting in settings.items():
        rows: dict[str, Any] = {}
        for name, facts in RULES.items():
            config = CorrectionConfig(rule=name)
            outcome = learn(make_rule(config), facts.min_passes, setting, ages, seeds)
            score = outcome.score.view(len(AGES), num_seeds)
            rows[name] = {
                "parameters": parameters(config),
                "passes": facts.min_passes,
                "score": score.mean(1).tolist(),
                "score_error": (score.std(1) / num_seeds**0.5).tolist(),
                "worst": outcome.worst.view(len(AGES), num_seeds).mean(1).tolist(),
                "kl": outcome.kl.view(len(AGES), num_seeds).mean(1).tolist(),
                "ess": outcome.ess.view(len(AGES), num_seeds).nanmean(1).tolist(),
            }
        reference = rows["none"]["score"][0]
        for row in rows.values():
            row.update(_limits(row, reference))
        worlds[world] = {"setting": _plain(setting), "reference": reference, "rules": rows}
    result = {
        "ages": list(AGES),
        "seeds": num_seeds,
        "worlds": worlds,
        "supported_kl": {name: _supported(name, worlds) for name in RULES},
    }
    if draw is not None:
        draw.write_text(drawing.svg(result))
    return result


def _limits(row: dict[str, Any], reference: float) -> dict[str, Any]:
    """Largest age up to which the rule holds, and the largest divergence seen up to there."""
    held = 0
    for score in row["score"]:
        if score < HOLDS * reference:
            break
        held += 1
    return {
        "holds_to": AGES[held - 1] if held else None,
        "broke": held < len(AGES),
        "held_kl": max(row["kl"][:held]) if held else None,
    }


def _supported(name: str, worlds: dict[str, Any]) -> float | None:
    """Largest KL at which the rule held where it broke at all; the largest seen when it did not."""
    rows = [world["rules"][name] for world in worlds.values()]
    if any(row["held_kl"] is None for row in rows):
        return None
    broken = [row["held_kl"] for row in rows if row["broke"]]
    return min(broken) if broken else max(row["held_kl"] for row in rows)


def _plain(setting: Any) -> dict[str, Any]:
    import dataclasses

    return dataclasses.asdict(setting)


def table(result: dict[str, Any]) -> str:
    """Score by age, the age up to which a rule holds, the divergence it bore there."""
    lines = []
    for world, figures in result["worlds"].items():
        reference = figures["reference"]
        lines.append(
            f"{world}: share of the attainable objective reached, by age of the samples "
            f"({result['seeds']} seeds; on-policy {reference:.2f}; * below {HOLDS:.0%} of it)"
        )
        head = "".join(f"{age:>8}" for age in result["ages"])
        lines.append(f"{'rule':<20}{head}   holds to   KL there   ESS at 32")
        for name, row in figures["rules"].items():
            least = HOLDS * reference
            cells = "".join(
                f"{score:>7.2f}{'*' if score < least else ' '}" for score in row["score"]
            )
            held = "-" if row["holds_to"] is None else str(row["holds_to"])
            kl = "-" if row["held_kl"] is None else f"{row['held_kl']:.3f}"
            lines.append(f"{name:<20}{cells}   {held:>8}   {kl:>8}   {row['ess'][-1]:>9.2f}")
        lines.append("")
    limits = ", ".join(
        f"{name} {'-' if kl is None else f'{kl:.3f}'}"
        for name, kl in result["supported_kl"].items()
    )
    lines.append(f"supported KL per token, nats: {limits}")
    return "\n".join(lines)


def failures(result: dict[str, Any]) -> list[str]:
    """A figure that is not finite would be a fault of a rule."""
    import math

    return [
        f"{world}: {name}: {figure} is not finite"
        for world, figures in result["worlds"].items()
        for name, row in figures["rules"].items()
        for figure in ("score", "kl")
        if not all(math.isfinite(value) for value in row[figure])
    ]
