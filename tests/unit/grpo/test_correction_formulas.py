"""Every formula of docs/correction.md against the code, in value and gradient."""

from __future__ import annotations

import math
import re

import pytest
import torch

from spade_async.config.correction import RULES, CorrectionConfig, parameters
from spade_async.grpo.correction import Tokens, make_rule
from spade_async.grpo.correction.gepo import group_log_means
from spade_async.grpo.correction.registry import RULE_TYPES
from tests.support.correction_formulas import PAGE, Sequence_, names, read, value

torch.set_num_threads(1)
FORMULAS = read()
CLIP = 0.2
LENGTHS = [1, 3, 5, 2, 4, 1]


def double(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def sequences(seed: int, *, second_pass: bool) -> list[Sequence_]:
    """Two groups of three sequences with ratios from a tenth to ten."""
    torch.manual_seed(seed)
    found = []
    for length in LENGTHS:
        log_mu = -3 * torch.rand(length, dtype=torch.float64) - 0.02
        log_old = (log_mu + torch.randn(length).double() * 0.7).clamp(max=-0.01)
        moved = torch.randn(length).double() * 0.3 if second_pass else torch.zeros(length).double()
        log_pi = (log_old + moved).clamp(max=-0.005) if second_pass else log_old
        advantage = float(torch.randn(1))
        found.append([log_mu, log_old, log_pi, advantage])
    whole = torch.stack([one[0].sum() for one in found])
    means = group_log_means(whole, torch.tensor([0, 0, 0, 1, 1, 1]))
    return [
        Sequence_(mu.tolist(), old.tolist(), pi.tolist(), advantage, float(mean))
        for (mu, old, pi, advantage), mean in zip(found, means, strict=True)
    ]


def test_the_page_has_every_rule_and_no_other() -> None:
    assert set(FORMULAS) == set(RULES) == set(RULE_TYPES)
    assert all(set(lines) == {"loss", "gradient"} for lines in FORMULAS.values())


def test_the_page_names_source_and_bias_of_every_rule() -> None:
    for section in re.split(r"^### ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        rule = section.splitlines()[0]
        if rule.startswith("`"):
            assert "Source:" in section or "Source" in section, rule
            assert "Bias:" in section or rule.startswith("`dppo_kl`"), rule


@pytest.mark.parametrize("second_pass", [False, True])
@pytest.mark.parametrize("rule", FORMULAS)
def test_loss_and_gradient_of_every_token_are_those_of_the_page(
    rule: str, second_pass: bool
) -> None:
    seen: set[float] = set()
    for seed in range(8):
        made = sequences(seed, second_pass=second_pass)
        policy = double([x for one in made for x in one.log_pi]).requires_grad_()
        tokens = Tokens(
            policy=policy,
            proximal=double([x for one in made for x in one.log_old]),
            behaviour=double([x for one in made for x in one.log_mu]),
            advantages=double([one.advantage for one in made for _ in one.log_pi]),
            sequences=torch.repeat_interleave(torch.arange(len(made)), torch.tensor(LENGTHS)),
            group_log_means=double([one.log_expected for one in made]),
        )
        config = CorrectionConfig(rule=rule)
        terms = make_rule(config, CLIP, CLIP)(tokens)
        terms.losses.sum().backward()
        assert policy.grad is not None
        places = [(one, t) for one in made for t in range(len(one.log_pi))]
        for index, (one, t) in enumerate(places):
            symbols = names(one, t, parameters(config), CLIP)
            expected = value(FORMULAS[rule]["loss"], symbols)
            assert float(terms.losses[index].detach()) == pytest.approx(
                expected, rel=1e-9, abs=1e-12
            )
            gradient = value(FORMULAS[rule]["gradient"], symbols)
            assert -float(policy.grad[index]) == pytest.approx(gradient, rel=1e-9, abs=1e-12)
            seen.add(round(gradient, 6))
    assert len(seen) > 20  # The figures are not all one constant.
    assert all(math.isfinite(x) for x in seen)
