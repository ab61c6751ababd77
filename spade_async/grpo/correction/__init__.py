"""Importance correction: what stale or mismatched generator probabilities cost, and the weight.

One interface (`tokens.Rule`), one file per rule. Formulas, bias and use: docs/correction.md.
"""

from spade_async.grpo.correction.ratio_stats import RatioStats, log_ratios, ratio_stats, stats_by
from spade_async.grpo.correction.registry import make_rule
from spade_async.grpo.correction.tis_token import truncated_weights
from spade_async.grpo.correction.tokens import MAX_LOG_RATIO, Rule, Terms, Tokens

__all__ = [
    "MAX_LOG_RATIO",
    "RatioStats",
    "Rule",
    "Terms",
    "Tokens",
    "log_ratios",
    "make_rule",
    "ratio_stats",
    "stats_by",
    "truncated_weights",
]
