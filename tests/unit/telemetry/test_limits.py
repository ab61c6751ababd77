from __future__ import annotations

import pytest

from spade_async.telemetry.limits import LimitFactors, limiting


def factors(learner: float | None, generator: float | None, **more: float) -> LimitFactors:
    values: dict[str, object] = {"agent_bound": 4, **more}
    return LimitFactors(learner_idle_share=learner, generator_idle_share=generator, **values)


@pytest.mark.parametrize(
    ("seen", "limit", "knob"),
    [
        (factors(0.02, 0.5), "learner", "learner.threads"),
        (factors(0.6, 0.05), "generator", "generator.count"),
        (factors(0.4, 0.6, jail_wait_share=0.7), "jail", "sandbox.workers"),
        (factors(0.4, 0.5, bound_wait_share=0.4), "bound", "async.agent_bound"),
        (factors(0.4, 0.5, agent_bound=0), "bound", "async.agent_bound"),
        (factors(0.2, 0.3), "learner", "learner.threads"),
        (factors(0.5, 0.3), "generator", "generator.concurrent_tasks"),
    ],
)
def test_sentence_names_the_limit_and_its_knob(seen: LimitFactors, limit: str, knob: str) -> None:
    sentence = limiting(seen)
    assert sentence.startswith(f"{limit}: ")
    assert knob in sentence


@pytest.mark.parametrize("seen", [factors(None, 0.1), factors(0.1, None)])
def test_unknown_shares_are_not_guessed(seen: LimitFactors) -> None:
    assert limiting(seen).startswith("not known yet")
