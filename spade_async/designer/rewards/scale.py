"""How much an advantage of the designer counts against one of the agent, beside the loss's weight.

The one knob of ours is `learner.designer_weight`: the loss is a token mean per role, so the number
of samples of either role does not matter, and the scale is 1. The reference's loss is a mean over
all samples; it makes up for the designer's small share with

    scale = min(agent samples / designer samples * interval, 50), 1 when either is missing

Source: SPADE's code; 192 / 24 * 4 = 32 in its games recipe.
"""

from __future__ import annotations

MAX_SCALE = 50.0
"""Cap of the reference."""


def reference_scale(
    num_designs: int, num_episodes: int, interval: int, *, cap: float = MAX_SCALE
) -> float:
    """Factor on the designer's advantages by the reference's formula.

    Args:
        num_designs: designs in the step that train.
        num_episodes: episodes in the step that train.
        interval: learner steps between two sets of designs.
        cap: largest factor.
    """
    if num_designs <= 0 or num_episodes <= 0:
        return 1.0
    return min(num_episodes / num_designs * interval, cap)


def role_weights(
    num_designs: int, num_episodes: int, interval: int, *, cap: float = MAX_SCALE
) -> tuple[float, float]:
    """(weight of a design, weight of an episode) of the same formula."""
    return reference_scale(num_designs, num_episodes, interval, cap=cap), 1.0
