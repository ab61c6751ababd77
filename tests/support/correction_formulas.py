"""The formulas of docs/correction.md as functions of plain numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "correction.md"
_RULE = re.compile(r"^### `(\w+)`.*?\n```formula\n(.*?)```", re.MULTILINE | re.DOTALL)
SYMBOLS = {"C": "cap", "low": "low", "high": "high", "delta": "delta", "tau": "penalty"}


def read() -> dict[str, dict[str, str]]:
    """Rule -> {"loss": expression, "gradient": expression}, in the order of the page."""
    found = {}
    for rule, block in _RULE.findall(PAGE.read_text()):
        lines = [line.split("=", 1) for line in block.strip().splitlines()]
        found[rule] = {name.strip(): text.strip() for name, text in lines}
    return found


@dataclass(frozen=True)
class Sequence_:
    """One sequence: log-probabilities of its tokens and what it is worth."""

    log_mu: Sequence[float]
    log_old: Sequence[float]
    log_pi: Sequence[float]
    advantage: float
    log_expected: float
    """log E of its group."""


def names(one: Sequence_, t: int, parameters: dict[str, float], clip: float) -> dict[str, Any]:
    """Every symbol of the page for token t of a sequence."""
    mu, old, pi = (math.exp(x[t]) for x in (one.log_mu, one.log_old, one.log_pi))
    length, advantage = len(one.log_mu), one.advantage
    log_w = [a - b for a, b in zip(one.log_old, one.log_mu, strict=True)]
    log_rho = [a - b for a, b in zip(one.log_pi, one.log_mu, strict=True)]

    def inside(x: float, low: float = 1 - clip, high: float = 1 + clip) -> float:
        return 0.0 if (advantage > 0 and x > high) or (advantage < 0 and x < low) else 1.0

    return {
        "A": advantage,
        "mu": mu,
        "pi": pi,
        "w": old / mu,
        "u": pi / old,
        "rho": pi / mu,
        "W": math.exp(sum(log_w)),
        "g": math.exp(sum(log_w) / length),
        "s": math.exp(sum(log_rho) / length),
        "gone": -sum(log_w) / length,
        "p": math.exp(sum(one.log_pi)),
        "E": math.exp(one.log_expected),
        "kl": mu * math.log(mu / pi) + (1 - mu) * math.log((1 - mu) / (1 - pi)),
        "e_low": clip,
        "e_high": clip,
        **{symbol: parameters[name] for symbol, name in SYMBOLS.items() if name in parameters},
        "min": min,
        "max": max,
        "log": math.log,
        "clip": lambda x, a, b: min(max(x, a), b),
        "where": lambda condition, a, b: a if condition else b,
        "inside": inside,
        "within": lambda x: inside(x, parameters["low"], parameters["high"]),
    }


def value(expression: str, symbols: dict[str, Any]) -> float:
    """What an expression of the page is worth."""
    # The page is ours and the names are all there is.
    return float(eval(expression, {"__builtins__": {}}, symbols))
