"""A whole run under `run.compat = "reference"`: how its arms are played, and over a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.promises import check_nothing_lost_or_twice
from tests.support.whole_run import END_LIMIT_S, whole_run

pytestmark = pytest.mark.timeout(200)
STEPS = 3
PLAYS, HINTED = 4, 16


def test_hinted_plays_have_seeds_and_a_number_of_their_own(
    tmp_path: Path, nano_model: Path
) -> None:
    with whole_run(
        tmp_path / "run", nano_model, train__steps=STEPS, run__compat="reference"
    ) as run:
        run.start()
        run.wait_steps(1)
        run.kill_all()
        run.end(END_LIMIT_S)
        run.finish()
        check_nothing_lost_or_twice(run, STEPS)
        rows = run.query(
            "SELECT r.group_id, r.num_pairs, r.regret, r.standard_error, r.lower_bound,"
            " r.mean_with_hint, r.mean_no_hint FROM regrets r WHERE r.regret IS NOT NULL"
        )
        assert rows
        for group, num_pairs, regret, error, lower, with_hint, without in rows:
            samples = run.query(
                "SELECT arm, seed, episode_return FROM samples"
                f" WHERE group_id = '{group}' ORDER BY arm, position"
            )
            arms = {a: [s for s in samples if s[0] == a] for a in ("no_hint", "with_hint")}
            assert [len(arms[a]) for a in ("no_hint", "with_hint")] == [PLAYS, HINTED]
            seeds = [{s[1] for s in arm} for arm in arms.values()]
            assert [len(s) for s in seeds] == [PLAYS, HINTED]
            assert not seeds[0] & seeds[1]
            assert (num_pairs, lower) == (0, None)
            hinted = [s[2] or 0.0 for s in arms["with_hint"]]
            plain = [s[2] for s in arms["no_hint"] if s[2] is not None]
            assert with_hint == pytest.approx(sum(hinted) / HINTED)
            assert without == pytest.approx(sum(plain) / len(plain))
            assert regret == pytest.approx(with_hint - without)
            assert error is None or error >= 0.0
