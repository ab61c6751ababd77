"""IcePop: token weights inside a band, nothing outside."""

from __future__ import annotations

from dataclasses import dataclass

from spade_async.grpo.correction.tokens import Terms, Tokens, banded, bounded_exp


@dataclass(frozen=True, slots=True)
class IcePop:
    """``L = -w 1[low <= w <= high] * min(u A, clip(u, ...) A)``.

    Bias: token ratios, and all that lies outside the band: ``E[w 1[outside] A grad log pi]``.
    Use it: against outliers of a mismatched engine. With age it drops more and more of the signal;
    a token that the learner has made much likelier (w > high) is dropped although it is the best.
    Source: Every Step Evolves (arXiv 2510.18855); OpenRLHF's band 0.5 to 5.
    """

    low: float
    high: float
    clip_low: float
    clip_high: float

    def __call__(self, tokens: Tokens) -> Terms:
        """See `tokens.Rule`."""
        raw = bounded_exp((tokens.proximal - tokens.behaviour).detach())
        return banded(tokens, raw, raw, (self.low, self.high), self.clip_low, self.clip_high)
