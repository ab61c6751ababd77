"""The games contract: identity, shape, bounds and the return rule."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_async.environment import contract
from tests.support import environments


def test_environment_id_is_the_first_16_hex_of_sha256() -> None:
    assert contract.environment_id("") == "e3b0c44298fc1c14"
    assert contract.environment_id("a") != contract.environment_id("b")


def test_skeleton_ignores_numbers_strings_comments_and_blanks() -> None:
    one = "class AEnv:\n    x = 12  # twelve\n    t = 'a # b'\n"
    two = 'class AEnv:\n\n  x = 0x7f\n  t = "c"\n'
    assert contract.skeleton(one) == contract.skeleton(two)


def test_skeleton_sees_names_and_operators() -> None:
    base = contract.skeleton("x = a + 1")
    assert contract.skeleton("x = a - 1") != base
    assert contract.skeleton("x = b + 1") != base
    assert contract.skeleton("x2 = a + 1") != base


def test_skeleton_ignores_triple_quoted_and_prefixed_strings() -> None:
    assert contract.skeleton('f"""a\n\'{b}"""') == contract.skeleton("rb'z'")
    assert contract.skeleton("return'a'") == contract.skeleton("return'b'")


@given(st.text(max_size=400))
def test_skeleton_takes_any_text(text: str) -> None:
    assert len(contract.skeleton(text)) == 16


@pytest.mark.parametrize("quote", ['"', "'", '"""', "\\'", "#", "f'", "0.", "'''\""])
def test_skeleton_is_bounded_on_hostile_text(quote: str) -> None:
    # A quadratic expression would run into the timeout of the test.
    assert len(contract.skeleton(quote * contract.MAX_SOURCE_BYTES)) == 16


def test_class_name_is_the_first_that_ends_in_env_but_not_env_itself() -> None:
    source = (
        "class Helper:\n    pass\nclass Env:\n    pass\nclass AEnv(Env):\n    pass\nclass BEnv: x"
    )
    assert contract.class_name(source) == "AEnv"
    assert contract.class_name("    class InnerEnv:\n        pass") is None


def test_source_problem_names_what_is_wrong() -> None:
    assert contract.source_problem(environments.GOOD) is None
    assert contract.source_problem(" \n") == "the program is empty"
    assert "65537 bytes" in str(contract.source_problem("x" * (contract.MAX_SOURCE_BYTES + 1)))
    assert "lone surrogate" in str(contract.source_problem("x = '\ud800'"))


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, 10.01, -11.0, None])
def test_a_reward_that_is_not_finite_or_too_large_is_a_problem(reward: float | None) -> None:
    assert contract.reward_problem(reward) is not None


def test_rewards_up_to_the_bound_are_fine() -> None:
    assert [contract.reward_problem(r) for r in (-10.0, 0.0, 10.0)] == [None, None, None]


def test_the_return_is_the_last_reward_clamped_when_terminated_and_zero_otherwise() -> None:
    assert contract.episode_return(2.0, terminated=True) == 1.0
    assert contract.episode_return(-2.0, terminated=True) == -1.0
    assert contract.episode_return(0.25, terminated=True) == 0.25
    assert contract.episode_return(1.0, terminated=False) == 0.0
    with pytest.raises(ValueError, match="finite reward"):
        contract.episode_return(math.nan, terminated=True)


def test_single_turn_programs_get_one_probe_and_others_a_margin() -> None:
    assert contract.probe_turns(1) == 1
    assert contract.probe_turns(4) == 4 + contract.TERMINATION_MARGIN


def test_the_first_probe_action_differs_between_instances() -> None:
    assert len({contract.probe_action(0, offset) for offset in range(3)}) == 3
