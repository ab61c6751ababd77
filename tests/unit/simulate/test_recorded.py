"""A run in virtual time is written into a real ledger, and replayed from it.

Only what a real coordinator would have written: what was not in at the end is not there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from spade_async.config.load import dump_resolved
from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.coordinator.blocks import task_id
from spade_async.coordinator.schedule import Take, Wait
from spade_async.errors import LedgerError
from spade_async.ledger import STILL_OUT, GroupRow, Ledger, LedgerReader, StepTime, TaskTime
from spade_async.ledger.regrets import RegretRow
from spade_async.regret import EarlyClass
from spade_async.simulate.durations import Fixed, LogNormal
from spade_async.simulate.prediction import read_newest
from spade_async.simulate.recorded import measured_steps, recorded_workload
from spade_async.simulate.two_roles import TwoRoles, TwoRoleSetting
from spade_async.simulate.workload import Design, DrawnWorkload, Piece, Play
from spade_async.types import Arm, Role

SETTING = TwoRoleSetting(
    agent_bound=2, designer_bound=4, agent_quota=8, designer_quota=2, group_size=4,
    pool_share=0.25, slots=1000,
)  # fmt: skip
"""So many slots that no piece waits for one: what a piece took is what it was drawn to take."""
WORK = DrawnWorkload(
    seed=3, designs=LogNormal.of_mean(20.0, 0.7), episodes=LogNormal.of_mean(10.0, 0.7),
    learner=Fixed(12.0), validity=0.8, swap=Fixed(0.5),
)  # fmt: skip


WHOLE = (0.0, math.inf)


@dataclass
class Recorder:
    """A workload that notes what it gave, and a schedule that notes what it took."""

    run: TwoRoles | None = None
    groups: dict[str, GroupRow] = field(default_factory=dict)
    tasks: list[TaskTime] = field(default_factory=list)
    steps: list[StepTime] = field(default_factory=list)
    num_pool: int = 0
    work: DrawnWorkload = WORK
    regrets: list[tuple[float, RegretRow]] = field(default_factory=list)

    def watch(self, run: TwoRoles) -> None:
        self.run = run
        take = run.schedule.take

        def taking() -> Take | Wait:
            found = take()
            if isinstance(found, Take):
                for name in [*found.designer, *found.agent]:
                    key = self.name(name)
                    self.groups[key] = replace(self.groups[key], state="trained")
                now = run.timeline.now_s
                ordinal = run.schedule.learner_ordinal + 1
                self.steps.append(StepTime(
                    ordinal=ordinal, num_samples=9, num_tokens=9, taken_unix_s=now,
                    trained_unix_s=now + 12.0, loaded_unix_s=now + 12.5, busy_s=12.0,
                ))  # fmt: skip
            return found

        run.schedule.take = taking  # type: ignore[method-assign]

    @staticmethod
    def name(group: str) -> str:
        """The simulator numbers designs over all groups, the coordinator within a group."""
        if group.count(".") != 2:
            return group
        parent, number, last = group.split(".")
        return f"{parent}.{int(number) % SETTING.group_size}.{last}"

    def design(self, number: int) -> Design:
        found = self.work.design(number)
        group = f"d-{number // SETTING.group_size}"
        if group not in self.groups:
            self.add_group(group, "design", SETTING.group_size)
        self.add_task(group, f"{group}.{number % SETTING.group_size}", 0, "design", "", found.piece,
                      self.now_s)  # fmt: skip
        return found

    def play(self, design: int) -> Play:
        group = f"d-{design // SETTING.group_size}.{design % SETTING.group_size}.play"
        return self.add_play(group, "play", self.work.play(design))

    def replay(self, design: int, offset: int) -> Play:
        group = f"d-{design // SETTING.group_size}.{design % SETTING.group_size}.o{offset}"
        return self.add_play(group, "replay", self.work.replay(design, offset))

    def pool_play(self, number: int) -> Play:
        return self.add_play(f"m-{number}", "pool", self.work.pool_play(number))

    def learner_s(self, step: int, num_samples: int) -> float:
        return self.work.learner_s(step, num_samples)

    def swap_s(self, step: int) -> float:
        return self.work.swap_s(step)

    @property
    def summary(self) -> dict[str, float]:
        return {}

    def add_group(self, group: str, kind: str, members: int) -> None:
        assert self.run is not None
        self.groups[group] = GroupRow(
            group_id=group, role=Role.DESIGNER if kind == "design" else Role.AGENT, kind=kind,
            birth_ordinal=self.run.schedule.loaded_ordinal or 0, members=members,
            created_unix_s=self.run.timeline.now_s,
        )  # fmt: skip

    def add_play(self, group: str, kind: str, play: Play) -> Play:
        self.add_group(group, kind, self.work.episodes_per_arm)
        now = self.now_s
        size = play.block or len(play.plain)
        for start in range(0, len(play.plain), size):
            block = slice(start, start + size)
            arms = ((Arm.NO_HINT, play.plain[block]), (Arm.WITH_HINT, play.hinted[block]))
            for arm, pieces in arms:
                for index, piece in enumerate(pieces):
                    name = task_id(group, arm, start)
                    self.add_task(group, name, index, kind, arm, piece, now)
            now += max(piece.slot_s for _, pieces in arms for piece in pieces)
        if kind == "play":
            row = RegretRow(
                group_id=group, environment_id=group, skill="s", step=0, regret=None,
                standard_error=None, lower_bound=None, paid_regret=None, mean_with_hint=None,
                mean_no_hint=None, regret_class=None, num_planned=self.work.episodes_per_arm,
                num_played=len(play.plain), num_pairs=0, is_stopped=play.is_stopped,
            )  # fmt: skip
            self.regrets.append((now, row))
            if play.is_dropped:
                self.groups[group] = replace(self.groups[group], state="missing")
        return play

    @property
    def now_s(self) -> float:
        assert self.run is not None
        return self.run.timeline.now_s

    def add_task(
        self, group: str, task: str, index: int, kind: str, arm: str, piece: Piece, now: float
    ) -> None:
        self.tasks.append(TaskTime(
            task_id=task, position=index, group_id=group, kind=kind, arm=arm, generator="gen-0",
            dispatched_unix_s=now, started_unix_s=now, finished_unix_s=now + piece.slot_s,
            queue_s=0.0, engine_s=piece.slot_s, num_tokens=1,
        ))  # fmt: skip

    def write(self, path: Path, end_s: float) -> None:
        with (
            Ledger.open(path, create=True, config_digest="c") as ledger,
            ledger.transaction(),
        ):
            for group in self.groups.values():
                ledger.add_group(group)
                ledger.set_group_state(group.group_id, group.state)
            ledger.add_task_times(t for t in self.tasks if t.finished_unix_s <= end_s)
            for measured_s, row in self.regrets:
                if measured_s <= end_s:
                    ledger.add_regret(row)
            late = [t for t in self.tasks if t.finished_unix_s > end_s]
            ledger.put_state(
                STILL_OUT,
                {t.task_id: t.dispatched_unix_s for t in late if t.dispatched_unix_s <= end_s},
            )
            ledger.put_step_times(s for s in self.steps if (s.trained_unix_s or 0) <= end_s)


def record(path: Path, setting: TwoRoleSetting, steps: int, work: DrawnWorkload = WORK) -> None:
    recorder = Recorder(work=work)
    run = TwoRoles(setting, recorder)
    recorder.watch(run)
    run.run(steps)
    recorder.write(path, run.timeline.now_s)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("run") / "ledger.sqlite"
    record(where, SETTING, 60)
    return where


def test_own_step_time_is_predicted_to_a_fraction(path: Path) -> None:
    with LedgerReader.open(path) as ledger:
        measured = measured_steps(ledger, WHOLE, SETTING.agent_bound)
        work = recorded_workload(ledger, WHOLE, SETTING.agent_bound, SETTING.designer_bound)
    assert (measured.warm_up, measured.num_steps) == (3, 57)
    found = TwoRoles(SETTING, work).run(60, warm_up=3)
    # Only the last steps meet stand-ins for what was not in; nothing else differs.
    assert found.step_s == pytest.approx(measured.step_s, rel=0.02)
    assert found.learner_idle_share == pytest.approx(measured.learner_idle_share, abs=0.02)
    assert found.num_over_bound == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"agent_bound": 0, "designer_bound": 0},
        {"agent_bound": 1, "designer_bound": 2},
        {"agent_bound": 4, "designer_bound": 8},
        {"slots": 24},
        {"generators": 2, "slots": 12},
        {"learner_speed": 2.0},
    ],
    ids=str,
)
def test_step_time_under_another_setting_is_predicted_within_ten_percent(path, changed) -> None:
    other = replace(SETTING, **changed)
    with LedgerReader.open(path) as ledger:
        work = recorded_workload(ledger, WHOLE, SETTING.agent_bound, SETTING.designer_bound)
    truth = TwoRoles(other, WORK).run(60, warm_up=3)
    found = TwoRoles(other, work).run(60, warm_up=3)
    assert found.step_s == pytest.approx(truth.step_s, rel=0.10)


def test_pieces_that_were_not_in_are_stood_in_for_and_not_left_out(path: Path) -> None:
    with LedgerReader.open(path) as ledger:
        work = recorded_workload(ledger, WHOLE, SETTING.agent_bound, SETTING.designer_bound)
        num_designs = 4 * len(ledger.query("SELECT 1 FROM groups WHERE kind = 'design'"))
        tasks = ledger.task_times()
    summary = work.summary
    assert summary["designs"] == num_designs
    assert len([task for task in tasks if task.kind == "design"]) < num_designs
    assert summary["design_slot_s"] == pytest.approx(WORK.designs.mean, rel=0.1)
    assert summary["episode_slot_s"] == pytest.approx(WORK.episodes.mean, rel=0.1)
    assert summary["learner_s"] == pytest.approx(12.0, abs=0.2)
    assert summary["swap_s"] == pytest.approx(0.5)
    assert summary["latency_s"] == 0.0


def test_a_run_that_is_too_short_says_how_long_it_must_be(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    record(path, SETTING, 5)
    with LedgerReader.open(path) as ledger:
        with pytest.raises(LedgerError, match=r"5 steps .* bound of 2 a replay needs at least 7"):
            measured_steps(ledger, WHOLE, SETTING.agent_bound)
        with pytest.raises(LedgerError, match="let it run longer"):
            recorded_workload(ledger, WHOLE, 8, 16)


def test_steps_of_an_earlier_start_do_not_count(path: Path) -> None:
    with LedgerReader.open(path) as ledger:
        times = ledger.step_times()
        since_s = times[20].taken_unix_s
        assert measured_steps(ledger, (since_s, math.inf), 2).num_steps == 60 - 20 - 3


def test_right_after_a_resume_the_start_before_it_is_replayed(path: Path, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.ledger.write_bytes(path.read_bytes())
    bounds = {"agent_bound": SETTING.agent_bound, "designer_bound": SETTING.designer_bound}
    dump_resolved(Config.model_validate({"async": bounds}), tmp_path)
    with LedgerReader.open(path) as ledger:
        times = [step.taken_unix_s for step in ledger.step_times()]
    starts = [times[0] - 1.0, times[40] - 0.001, times[-1] + 5.0]
    found, num_passed = read_newest(tmp_path, starts)
    # The last start has no step yet; of the one before it the pipeline's filling is left out.
    assert (num_passed, found.measured.num_steps) == (1, len(times) - 40 - 3)
    with pytest.raises(LedgerError, match=r"0 steps of one start.*none of the 2 starts"):
        read_newest(tmp_path, [times[-1] + 5.0, times[-1] + 9.0])


EARLY = EarlyClass(planned=8, block=2, error=0.0, mastered_at=0.9, out_of_reach_at=0.1)


def rounded(play: Play) -> Play:
    """Instants of a ledger are sums: their differences are what was added but for rounding."""
    plain, hinted = (
        tuple(Piece(round(piece.slot_s, 6)) for piece in pieces)
        for pieces in (play.plain, play.hinted)
    )
    return replace(play, plain=plain, hinted=hinted)


def test_pairs_that_were_not_played_are_not_played_again(tmp_path: Path) -> None:
    stopped = replace(WORK, early=EARLY)
    record(tmp_path / "ledger.sqlite", SETTING, 60, stopped)
    with LedgerReader.open(tmp_path / "ledger.sqlite") as ledger:
        measured = measured_steps(ledger, WHOLE, SETTING.agent_bound)
        work = recorded_workload(ledger, WHOLE, 2, 4, block=EARLY.block)
    found = TwoRoles(SETTING, work).run(60, warm_up=3)
    assert found.step_s == pytest.approx(measured.step_s, rel=0.02)
    assert found.num_over_bound == found.num_discarded == 0
    num_designs = int(work.summary["designs"])
    numbers = [n for n in range(num_designs) if work.design(n).is_played]
    plays = [work.play(n) for n in numbers]
    truths = [stopped.play(n) for n in numbers]
    same = [rounded(p) == rounded(t) for p, t in zip(plays, truths, strict=True)]
    # What was in is the very same; the few that were out when it ended have stand-ins.
    assert sum(same) > 0.9 * len(same)
    counts = {len(play.plain) for play in plays}
    assert {2, 8} <= counts <= {2, 4, 6, 8}
    assert {(play.is_stopped, play.is_dropped) for play in plays} == {
        (False, False), (True, False), (True, True),
    }  # fmt: skip
    assert all(len(p.plain) == len(p.hinted) for p in plays)
    assert all(p.is_stopped == (len(p.plain) < 8) for p in plays)
    # Under other settings, against the truth.
    other = replace(SETTING, slots=24)
    truth = TwoRoles(other, stopped).run(60, warm_up=3)
    assert TwoRoles(other, work).run(60, warm_up=3).step_s == pytest.approx(truth.step_s, rel=0.10)


def test_designs_that_were_played_again_until_their_pay_are_replayed_so(tmp_path: Path) -> None:
    setting = replace(SETTING, delay=3, designer_bound=6, agent_quota=12)
    record(tmp_path / "ledger.sqlite", setting, 60)
    with LedgerReader.open(tmp_path / "ledger.sqlite") as ledger:
        offsets = ledger.query("SELECT DISTINCT group_id FROM groups WHERE kind = 'replay'")
        measured = measured_steps(ledger, WHOLE, setting.agent_bound)
        work = recorded_workload(ledger, WHOLE, 2, 6)
    assert {row[0].rpartition(".o")[2] for row in offsets} == {"1", "2"}
    found = TwoRoles(setting, work).run(60, warm_up=3)
    assert found.step_s == pytest.approx(measured.step_s, rel=0.02)
    assert found.num_over_bound == found.num_discarded == 0
    assert found.designer_mean_age is not None
    assert found.designer_mean_age >= 3.0
    played = next(n for n in range(40) if work.design(n).is_played)
    assert rounded(work.replay(played, 1)) == rounded(WORK.replay(played, 1))
    for changed in ({"slots": 24}, {"agent_bound": 1}, {"delay": 4, "designer_bound": 8}):
        other = replace(setting, **changed)
        truth = TwoRoles(other, WORK).run(60, warm_up=3)
        replayed = TwoRoles(other, work).run(60, warm_up=3)
        assert replayed.step_s == pytest.approx(truth.step_s, rel=0.10)
        assert replayed.designer_max_age is not None
        assert replayed.designer_max_age <= other.designer_bound
