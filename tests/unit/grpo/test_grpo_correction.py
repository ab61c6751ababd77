from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from spade_async.grpo.correction import ratio_stats, stats_by, truncated_weights


def test_weight_is_the_ratio_truncated_at_the_cap() -> None:
    learner = torch.tensor([math.log(0.5), math.log(0.6), math.log(0.9)])
    generator = torch.tensor([math.log(0.5), math.log(0.4), math.log(0.1)])
    # 0.5/0.5 = 1, 0.6/0.4 = 1.5, 0.9/0.1 = 9 -> 2
    weights = truncated_weights(learner, generator, cap=2.0)
    torch.testing.assert_close(weights, torch.tensor([1.0, 1.5, 2.0]))


def test_weight_has_no_gradient_and_survives_any_log_ratio() -> None:
    learner = torch.tensor([0.0, -500.0, 0.0], requires_grad=True)
    generator = torch.tensor([-500.0, 0.0, -89.0])
    weights = truncated_weights(learner, generator, cap=3.0)
    assert not weights.requires_grad
    assert weights[0] == 3.0
    assert weights[2] == 3.0
    assert 0.0 < float(weights[1]) < 1e-8


def test_figures_are_those_worked_out_by_hand() -> None:
    # ratios 1, 2, 4 with cap 2.5: weights 1, 2, 2.5
    stats = ratio_stats(np.log(np.array([1.0, 2.0, 4.0])).astype(np.float32), cap=2.5)
    assert stats is not None
    assert stats.num_tokens == 3
    assert stats.ratio_mean == pytest.approx(7 / 3)
    assert stats.ratio_max == pytest.approx(4)
    assert stats.clip_share == pytest.approx(1 / 3)
    assert stats.ess == pytest.approx(5.5**2 / (3 * 11.25), rel=1e-5)
    assert stats.kl_k1 == pytest.approx(-math.log(8) / 3)
    assert stats.kl_k3 == pytest.approx(7 / 3 - 1 - math.log(8) / 3)
    assert stats.max_abs_log_ratio == pytest.approx(math.log(4))


def test_on_policy_tokens_have_ratio_one_no_divergence_and_full_sample_size() -> None:
    stats = ratio_stats(np.zeros(5, np.float32), cap=2.0)
    assert stats is not None
    assert (stats.ratio_mean, stats.ess, stats.clip_share) == (1.0, 1.0, 0.0)
    assert (stats.kl_k1, stats.kl_k3) == (0.0, 0.0)


def test_no_tokens_have_no_figures() -> None:
    assert ratio_stats(np.zeros(0, np.float32), cap=2.0) is None


def test_figures_split_by_key() -> None:
    log_ratio = np.log(np.array([1.0, 3.0, 2.0])).astype(np.float32)
    split = stats_by(log_ratio, np.array([4, 4, 0]), cap=10.0)
    assert list(split) == [0, 4]
    assert split[0].ratio_mean == pytest.approx(2.0)
    assert split[4].ratio_mean == pytest.approx(2.0)
    assert split[4].num_tokens == 2
