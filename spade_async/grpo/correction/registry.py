"""From the configuration's name to the rule."""

from __future__ import annotations

import dataclasses
from typing import Any

from spade_async.config.correction import CorrectionConfig, parameters
from spade_async.grpo.correction.cispo import Cispo
from spade_async.grpo.correction.decoupled_ppo import DecoupledPpo
from spade_async.grpo.correction.dppo_kl import DppoKl
from spade_async.grpo.correction.dppo_tv import DppoTv
from spade_async.grpo.correction.dual_clip import DualClip
from spade_async.grpo.correction.gepo import Gepo
from spade_async.grpo.correction.gspo import Gspo
from spade_async.grpo.correction.icepop import IcePop
from spade_async.grpo.correction.mis_geometric import MisGeometric
from spade_async.grpo.correction.mis_product import MisProduct
from spade_async.grpo.correction.none import NoCorrection
from spade_async.grpo.correction.opsm import Opsm
from spade_async.grpo.correction.ppo_behaviour import PpoBehaviour
from spade_async.grpo.correction.squared_log_ratio import SquaredLogRatio
from spade_async.grpo.correction.tis_sequence import TisSequence
from spade_async.grpo.correction.tis_token import TisToken
from spade_async.grpo.correction.tokens import Rule
from spade_async.grpo.correction.truncated_reinforce import TruncatedReinforce

RULE_TYPES: dict[str, type[Any]] = {
    "none": NoCorrection,
    "tis_token": TisToken,
    "tis_sequence": TisSequence,
    "decoupled_ppo": DecoupledPpo,
    "ppo_behaviour": PpoBehaviour,
    "cispo": Cispo,
    "gspo": Gspo,
    "icepop": IcePop,
    "mis_product": MisProduct,
    "mis_geometric": MisGeometric,
    "dppo_tv": DppoTv,
    "dppo_kl": DppoKl,
    "gepo": Gepo,
    "dual_clip": DualClip,
    "squared_log_ratio": SquaredLogRatio,
    "opsm": Opsm,
    "truncated_reinforce": TruncatedReinforce,
}
"""The same names as `config.correction.RULES`; a test holds the two equal."""


def make_rule(config: CorrectionConfig, clip_low: float = 0.2, clip_high: float = 0.2) -> Rule:
    """The rule with its parameters.

    Args:
        config: checked by `config.correction.correction_problem`.
        clip_low: learner.clip_low, for the rules that clip a ratio.
        clip_high: learner.clip_high.
    """
    kind = RULE_TYPES[config.rule]
    values = parameters(config)
    if "clip_low" in {f.name for f in dataclasses.fields(kind)}:
        values |= {"clip_low": clip_low, "clip_high": clip_high}
    rule: Rule = kind(**values)
    return rule
