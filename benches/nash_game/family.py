"""The family of environments, with exact best responses, and how each assumption is broken.

An environment is a program ``answer = (k x + c) mod m`` with the m instances x = 0 ... m - 1 and m
actions, of which one returns 1 and the others 0. There are m^2 of them: every value, gradient and
best response is a finite sum; with m = 2 every pure strategy can be listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MODULUS = 5

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ASSUMPTIONS = ("none", "sound", "articulable", "internalisable")
"""Which assumption of the theory is broken."""


@dataclass(frozen=True)
class Family:
    """The environments as tables; E environments, X instances, A actions."""

    returns: Floats
    """[E, X, A] return of an action, as the program judges it."""
    meant: Floats
    """[E, X, A] the same by the question that the program was meant to ask."""
    hint: Floats
    """[E, X, A] 1 for an action the hint leaves open, 0 for one it rules out."""
    observed: Ints
    """[E] what the agent sees of the program without the hint."""
    broken: Ints
    """Environments whose assumption is broken."""


def family(broken: str = "none", modulus: int = MODULUS) -> Family:
    """The family under all assumptions but one.

    * sound: programs with k = 0 accept a wrong answer (one too many), and their hint says the same.
    * articulable: the hint of programs with k = 0 rules nothing out.
    * internalisable: without the hint, programs with k = 1 look like those with k = 0, and ask for
      one more.
    """
    if broken not in ASSUMPTIONS:
        raise ValueError(f"broken={broken!r}: one of {', '.join(ASSUMPTIONS)}")
    k, c, x = np.meshgrid(*(np.arange(modulus),) * 3, indexing="ij")
    answers = ((k * x + c) % modulus).reshape(modulus**2, modulus)
    meant = np.eye(modulus)[answers]
    observed, first, second = np.arange(modulus**2), slice(modulus), slice(modulus, 2 * modulus)
    if broken == "internalisable":
        observed[second] = observed[first]
        meant[second] = np.eye(modulus)[(answers[first] + 1) % modulus]
    returns = meant.copy()
    if broken == "sound":
        returns[first] = np.eye(modulus)[(answers[first] + 1) % modulus]
    hint = returns.copy()
    if broken == "articulable":
        hint[first] = 1.0
    num = {"none": 0, "internalisable": 2 * modulus}.get(broken, modulus)
    return Family(returns, meant, hint, observed, np.arange(num))


@dataclass(frozen=True)
class PureProfile:
    """One environment for the designer, one action per observation and instance for the agent."""

    environment: int
    value: Floats
    """[E] return without the hint."""
    meant: Floats
    """[E] success at the question that was meant."""
    regret: Floats
    """[E] return with the hint minus without."""
    is_equilibrium: bool
    """Whether neither player gains by any other strategy."""


def pure_profiles(found: Family) -> Iterator[PureProfile]:
    """Every pure strategy of both; only for m = 2, where there are at most 1,024 of them."""
    num, instances, actions = found.returns.shape
    seen = np.unique(found.observed)
    cells = len(seen) * instances
    for code in range(actions**cells):
        digits = np.array([code // actions**i % actions for i in range(cells)])
        policy = np.zeros((num, instances, actions))
        policy[seen] = np.eye(actions)[digits.reshape(len(seen), instances)]
        policy = policy[found.observed]
        value = (policy * found.returns).sum(-1).mean(-1)
        # With the hint: its own answer if the hint leaves it open, else what the hint leaves.
        is_open = (policy * found.hint).sum(-1, keepdims=True) > 0
        hinted = np.where(is_open, policy, found.hint / found.hint.sum(-1, keepdims=True))
        regret = (hinted * found.returns).sum(-1).mean(-1) - value
        meant = (policy * found.meant).sum(-1).mean(-1)
        for environment in range(num):
            # The agent's best response to one environment always returns 1.
            is_best = regret[environment] >= regret.max() and value[environment] == 1.0
            yield PureProfile(environment, value, meant, regret, bool(is_best))
