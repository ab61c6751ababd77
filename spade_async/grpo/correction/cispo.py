"""CISPO: the ratio is clipped as a weight, so no token loses its gradient."""

from __future__ import annotations

from dataclasses import dataclass

from spade_async.grpo.correction.tokens import Terms, Tokens, bounded_exp, carried


@dataclass(frozen=True, slots=True)
class Cispo:
    """``L = -sg(clip(rho, low, high)) A log pi``.

    Bias: token ratios, and the clip: ``E[(rho - clip(rho)) A grad log pi]``.
    Use it: where rare tokens matter; like `tis_token`, with a floor as an option and a higher cap.
    In value the loss is ``-weight * A`` (log pi is replaced by a ratio that is 1, with the same
    gradient), so that losses of different rules can be compared.
    Source: MiniMax-M1 (arXiv 2506.13585); SkyRL's bounds 0 and 5.
    """

    low: float
    high: float

    def __call__(self, tokens: Tokens) -> Terms:
        """See `tokens.Rule`."""
        raw = bounded_exp((tokens.policy - tokens.behaviour).detach())
        used = raw.clamp(self.low, self.high)
        return Terms(-used * tokens.advantages * carried(tokens.policy), raw, used)
