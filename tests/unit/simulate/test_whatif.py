"""The grid, the options that make its work, and what is said about nonsense."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spade_async import cli
from spade_async.config.schema import Config
from spade_async.errors import ConfigError
from spade_async.simulate.assumptions import Assumed, drawn_workload
from spade_async.simulate.two_roles import TwoRoles
from spade_async.simulate.whatif import Grid, rows, setting_of, settings

ROOT = Path(__file__).parents[3]
NANO = str(ROOT / "configs" / "nano.toml")
SCRIPTED = str(ROOT / "configs" / "scripted.toml")
UNLIMITED = ["--set", "async.controller=false"]
DELAYS = ["--design-s", "20", "--episode-s", "10", "--learner-s", "30"]
RUNNER = CliRunner()


def ask(*arguments: str) -> dict:
    answer = RUNNER.invoke(cli.app, ["simulate", *arguments, "--json"])
    assert answer.exit_code == 0, answer.output
    return json.loads(answer.output)


def refusal(*arguments: str) -> str:
    answer = RUNNER.invoke(cli.app, ["simulate", *arguments])
    assert isinstance(answer.exception, ConfigError), answer.output
    return str(answer.exception)


def test_wider_bounds_and_more_slots_never_make_a_step_longer():
    found = ask(NANO, *DELAYS, "--bounds", "0,1,2,4", "--slots", "64,256", "--no-limits")
    steps = {(r["agent_bound"], r["slots"]): r["step_s"] for r in found["rows"]}
    assert len(steps) == 8
    for slots in (64, 256):
        column = [steps[bound, slots] for bound in (0, 1, 2, 4)]
        assert column == sorted(column, reverse=True)
    assert all(steps[bound, 256] <= steps[bound, 64] for bound in (0, 1, 2, 4))
    for row in found["rows"]:
        assert row["num_over_bound"] == row["num_discarded"] == 0
        assert row["designer_bound"] == 2 * row["agent_bound"]


def test_step_is_never_shorter_than_what_either_side_needs():
    # Per step 25 agent groups of 8 episodes of 10 s: at least 25 * 80 s of slots.
    (row,) = ask(NANO, *DELAYS, "--sigma", "0", "--validity", "0", "--slots", "8")["rows"][1:]
    assert row["step_s"] >= 25 * 80.0 / 8
    # A learner of 30 s: never below that.
    quick = ask(NANO, *DELAYS, *UNLIMITED, "--bounds", "16", "--slots", "1024")["rows"][-1]
    assert quick["step_s"] == pytest.approx(30.0, rel=0.03)
    assert quick["binds"] == "learner"


@pytest.mark.parametrize(
    ("more", "binds"),
    [
        (["--bounds", "0", "--slots", "1024"], ("async bounds",)),
        # Eight slots more are a generator more.
        (["--bounds", "16", "--slots", "8"], ("engine.slots", "generator.count")),
    ],
)
def test_binding_option_is_the_one_whose_relaxation_helps_most(more, binds):
    assert ask(NANO, *DELAYS, *more, "--steps", "30")["rows"][-1]["binds"] in binds


def test_controller_makes_samples_fresher_at_nearly_the_same_rate():
    # Learner-bound with a wide bound: what lies ready behind every take is only old.
    wide = [SCRIPTED, "--bounds", "16", "--slots", "128", "--steps", "200", "--no-limits"]
    on, off = ask(*wide)["rows"][-1], ask(*wide, *UNLIMITED)["rows"][-1]
    assert on["agent_mean_age"] < 0.6 * off["agent_mean_age"]
    assert on["step_s"] < 1.05 * off["step_s"]
    assert on["num_over_bound"] == off["num_over_bound"] == 0


def test_the_same_question_has_the_same_answer():
    assert ask(SCRIPTED, "--steps", "20") == ask(SCRIPTED, "--steps", "20")
    other = ask(SCRIPTED, "--steps", "20", "--seed", "1")
    assert other != ask(SCRIPTED, "--steps", "20")


def test_split_shares_devices_between_both_sides():
    base = setting_of(Config())
    found = settings(base, Grid(splits=4))
    assert [(s.generators, s.learner_speed) for s in found] == [(1, 3.0), (2, 2.0), (3, 1.0)]


def test_durations_of_a_scripted_configuration_are_its_own():
    found = ask(SCRIPTED, "--steps", "5", "--no-limits")["workload"]
    assert found["design_s"] == pytest.approx(0.08)
    assert found["episode_s"] == pytest.approx(0.04)
    assert found["learner_s"] == 0.05
    mine = ask(SCRIPTED, "--steps", "5", "--no-limits", "--learner-s", "7")["workload"]
    assert mine["learner_s"] == 7.0


def test_faster_learner_helps_when_it_is_the_limit():
    config = Config()
    base = setting_of(config)
    work = drawn_workload(config, Assumed(design_s=1.0, episode_s=0.5, learner_s=60.0), 0)
    slow, fast = rows(
        settings(base, Grid(learner_speeds=(1.0, 2.0))), work, steps=20, warm_up=5,
        finds_limit=False,
    )  # fmt: skip
    assert slow.result.step_s == pytest.approx(60.0)
    assert fast.result.step_s == pytest.approx(30.0)


def test_table_fits_where_there_is_no_terminal():
    answer = RUNNER.invoke(cli.app, ["simulate", SCRIPTED, "--bounds", "1,4", "--steps", "10"])
    assert answer.exit_code == 0
    for heading in ("bounds", "s/step", "rollouts", "per hour", "waste", "binds"):
        assert heading in answer.output
    assert "async.agent_bound=4" in answer.output
    assert max(map(len, answer.output.splitlines())) <= 120


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([NANO], ["--design-s, --episode-s, --learner-s", "--from RUN"]),
        ([NANO, *DELAYS[:4]], ["--learner-s: nothing says how long this takes"]),
        ([NANO, *DELAYS, "--bounds", "4,x"], ["--bounds", "'x' is no bound", "AGENT:DESIGNER"]),
        ([NANO, *DELAYS, "--bounds", "-1"], ["--bounds=-1", "at least 0"]),
        ([NANO, *DELAYS, "--slots", "0"], ["--slots=0", "above 0"]),
        ([NANO, *DELAYS, "--slots", "2.5"], ["--slots", "whole numbers"]),
        ([NANO, *DELAYS, "--learner-speed", "nan"], ["--learner-speed=nan"]),
        ([NANO, *DELAYS, "--steps", "0"], ["--steps=0", "at least 1"]),
        ([NANO, *DELAYS, "--split", "1"], ["--split=1", "at least 2"]),
        ([NANO, *DELAYS, "--split", "4", "--generators", "2"], ["--split", "--generators"]),
        ([NANO, *DELAYS, "--validity", "1.5"], ["--validity=1.5", "at most 1"]),
        ([NANO, *DELAYS, "--sigma", "9"], ["--sigma=9.0", "at most 4"]),
        ([NANO, "--design-s", "-3"], ["--design-s=-3.0", "at least 0"]),
        ([NANO, *DELAYS, "--bounds", ",".join(map(str, range(300)))], ["too many", "200"]),
        (
            [NANO, *DELAYS, "--set", "agent.groups_per_step=4", "--bounds", "0"],
            ["designer.group_size=4", "agent.groups_per_step=4"],
        ),
    ],
)
def test_nonsense_is_one_clear_line(arguments, words):
    said = refusal(*arguments)
    assert "\n" not in said
    for word in words:
        assert word in said


def test_a_folder_that_is_no_run_says_so(tmp_path: Path):
    assert "is not a run folder" in refusal(str(tmp_path))


def test_ten_steps_of_a_free_learner_are_the_generators_time_alone():
    config = Config()
    setting = setting_of(config)
    work = drawn_workload(
        config, Assumed(design_s=1.0, episode_s=1.0, learner_s=0.0, sigma=0.0, validity=1.0), 0
    )
    found = TwoRoles(setting, work).run(30, warm_up=10)
    assert found.slots_free_share < 0.1
    assert found.learner_idle_share == 1.0
