from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from spade_async.commands.compare import compare, figures
from spade_async.config.load import as_dict
from spade_async.config.schema import Config
from spade_async.errors import ConfigError, RunFolderError
from spade_async.types import PolicyVersion, RegretClass
from spade_async.view.terminal_compare import comparison
from tests.support.viewed_run import BOTH_WIN, HINT_HELPS, RunMaker


def make(folder: Path, level_means: dict[str, float], config: Config | None = None) -> Path:
    maker = RunMaker(folder, config)
    maker.environment([HINT_HELPS, HINT_HELPS, BOTH_WIN, BOTH_WIN])
    maker.environment([BOTH_WIN] * 4, RegretClass.MASTERED)
    maker.step(["d-0000000.0"])
    with maker.ledger.transaction():
        for level, mean in level_means.items():
            maker.ledger.add_eval(1, PolicyVersion(0, 1), level, 100, mean, 0.03)
        maker.ledger.add_alert(1.0, 1, "something [odd]")
    return maker.close()


def test_what_differs_and_whether_it_is_more_than_noise(tmp_path):
    one = make(tmp_path / "one", {"1": 0.50, "2": 0.50, "3": 0.9})
    # Error of a difference: .03 * sqrt(2) = .0424; twice that is .0849.
    config = as_dict(Config())
    config["learner"]["lr"] = 0.001
    two = make(tmp_path / "two", {"1": 0.58, "2": 0.59}, Config.model_validate(config))
    found = figures([one, two])
    assert found["config_differences"] == {"learner.lr": [1e-4, 1e-3]}
    levels = found["held_out_differences"]
    assert levels["1"][0] is None
    assert levels["1"][1]["verdict"] == "within noise"
    assert levels["1"][1]["standard_error"] == pytest.approx(0.0424, abs=1e-4)
    assert levels["2"][1]["verdict"] == "better"
    assert levels["3"][1] is None
    first = found["runs"][0]
    # Regrets .5 and 0: mean .25, error .25.
    assert first["regret"] == {"mean": 0.25, "standard_error": 0.25, "n": 2}
    assert first["classes"] == {"frontier": 0.5, "mastered": 0.5, "out_of_reach": 0.0}
    assert (first["steps"], first["alerts"]) == (1, ["something [odd]"])
    assert found["scored_differently"] == []


def test_a_worse_run_is_called_worse_and_other_instances_are_named(tmp_path):
    config = as_dict(Config())
    config["eval"]["instances_per_level"] = 7
    one = make(tmp_path / "one", {"1": 0.9})
    two = make(tmp_path / "two", {"1": 0.1}, Config.model_validate(config))
    found = figures([one, two])
    assert found["held_out_differences"]["1"][1]["verdict"] == "worse"
    assert found["scored_differently"] == ["eval.instances_per_level"]


def test_a_key_that_an_older_run_lacks_is_absent_there(tmp_path):
    one, two = make(tmp_path / "one", {}), make(tmp_path / "two", {})
    config = json.loads((one / "config.json").read_text())
    del config["learner"]["passes"]
    (one / "config.json").write_text(json.dumps(config))
    found = figures([one, two])
    assert found["config_differences"] == {"learner.passes": ["(absent)", 1]}
    # It stands at its default: nobody chose it.
    assert found["absent_at_default"] == ["learner.passes"]
    console = Console(file=io.StringIO(), width=80)
    console.print(comparison(found))
    assert "1 keys that an older run does not have" in console.file.getvalue()
    config["learner"]["passes"] = 3
    (two / "config.json").write_text(json.dumps(config))
    assert figures([one, two])["absent_at_default"] == []


@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_table_fits_80_columns(tmp_path, capsys, count):
    runs = [make(tmp_path / ("a" * 60 + str(i)), {"1": 0.5 + i / 10}) for i in range(count)]
    console = Console(file=io.StringIO(), width=80)
    compare(runs, as_json=False, console=console)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    for part in ("the same in all", "rollouts/h", "0.250 ± 0.250", "better", "something [odd]"):
        assert part in text
    compare(runs, as_json=True, console=console)
    assert len(json.loads(capsys.readouterr().out)["runs"]) == count


def test_one_run_and_an_empty_one(tmp_path):
    one = make(tmp_path / "one", {"1": 0.5})
    with pytest.raises(RunFolderError, match="at least two runs"):
        figures([one])
    with pytest.raises(ConfigError, match="is not a run folder"):
        figures([one, tmp_path])
    empty = RunMaker(tmp_path / "empty").close()
    console = Console(file=io.StringIO(), width=80)
    compare([one, empty], as_json=False, console=console)
    found = figures([empty, one])
    assert found["runs"][0]["regret"] == {"mean": None, "standard_error": None, "n": 0}
    assert found["runs"][0]["classes"]["frontier"] is None
