"""Self-play with exact gradients, best responses and the distance from equilibrium.

The agent is a table of logits per observation and instance. Without a hint it answers by their
softmax, with one by the softmax over what the hint leaves open: the same weights, as in SPADE. The
designer is a distribution over environments. Both climb: the agent the gradient of its expected
return without hints, the designer the natural gradient of the expected regret.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benches.nash_game.family import Family, Floats

AGENT_RATE, DESIGNER_RATE = 40.0, 2.0

"""Steps of the agent's gradient and of the designer's, which is the faster player."""
SEED, SPREAD = 0, 0.3
"""Of the agent's first logits: an agent without favourites would be too even a start."""


@dataclass
class Players:
    """Both players; everything below is exact."""

    family: Family
    logits: Floats
    """[observation, X, A] of the agent."""
    log_weights: Floats
    """[E] of the designer, up to a constant."""

    @classmethod
    def ignorant(cls, family: Family, spread: float = SPREAD) -> Players:
        """A uniform designer and an agent that knows nothing; its slight favourites are drawn."""
        logits = np.random.default_rng(SEED).normal(0.0, spread, family.returns.shape)
        return cls(family, logits, np.zeros(len(family.returns)))

    @property
    def designs(self) -> Floats:
        """[E] probability that the designer writes each environment."""
        weights: Floats = np.exp(self.log_weights - self.log_weights.max())
        return weights / weights.sum()

    @property
    def policy(self) -> Floats:
        """[E, X, A] probability of each action without a hint."""
        logits = self.logits[self.family.observed]
        raised = np.exp(logits - logits.max(-1, keepdims=True))
        found: Floats = raised / raised.sum(-1, keepdims=True)
        return found

    @property
    def hinted_policy(self) -> Floats:
        """[E, X, A] the same with the hint."""
        left_open = self.policy * self.family.hint
        found: Floats = left_open / left_open.sum(-1, keepdims=True)
        return found

    def value(self) -> Floats:
        """[E] expected return without a hint."""
        found: Floats = (self.policy * self.family.returns).sum(-1).mean(-1)
        return found

    def meant_value(self) -> Floats:
        """[E] expected success at the question that was meant, without a hint."""
        found: Floats = (self.policy * self.family.meant).sum(-1).mean(-1)
        return found

    def regret(self) -> Floats:
        """[E] expected return with the hint minus without."""
        found: Floats = (self.hinted_policy * self.family.returns).sum(-1).mean(-1) - self.value()
        return found

    def agent_gradient(self) -> Floats:
        """[observation, X, A] of the expected return under the designer's distribution."""
        policy, returns = self.policy, self.family.returns
        value = (policy * returns).sum(-1, keepdims=True)
        of_each = self.designs[:, None, None] * policy * (returns - value)
        found = np.zeros_like(self.logits)
        np.add.at(found, self.family.observed, of_each / returns.shape[1])
        return found

    def step(self, agent_rate: float = AGENT_RATE, designer_rate: float = DESIGNER_RATE) -> None:
        """Both move once, at the same time."""
        gradient, regret = self.agent_gradient(), self.regret()
        self.log_weights = self.log_weights + designer_rate * regret
        self.logits = self.logits + agent_rate * gradient

    def gaps(self) -> tuple[float, float]:
        """What (designer, agent) would gain by their best response; (0, 0) is an equilibrium."""
        regret = self.regret()
        designer = float(regret.max() - self.designs @ regret)
        return designer, best_value(self.family, self.designs) - float(self.designs @ self.value())


def best_value(family: Family, designs: Floats) -> float:
    """Expected return of the agent's best response without hints to a distribution of designs."""
    worth = np.zeros_like(family.returns)
    np.add.at(worth, family.observed, designs[:, None, None] * family.returns)
    return float(worth.max(-1).mean(-1).sum())


def self_play(family: Family, steps: int) -> tuple[Players, dict[str, list[float]]]:
    """Play from a uniform designer and an ignorant agent; the curves have one point per step."""
    players, broken = Players.ignorant(family), family.broken
    curves: dict[str, list[float]] = {
        name: []
        for name in ("regret", "largest_regret", "value", "meant", "worst_meant", "broken_share")
    }
    for _ in range(steps):
        designs, regret = players.designs, players.regret()
        value, meant = players.value(), players.meant_value()
        curves["regret"].append(float(designs @ regret))
        curves["largest_regret"].append(float(regret.max()))
        curves["value"].append(float(value.mean()))
        curves["meant"].append(float(meant.mean()))
        curves["worst_meant"].append(float(meant.min()))
        curves["broken_share"].append(float(designs[broken].sum()))
        players.step()
    return players, curves
