"""A mixture of corpora in a whole run with two generators, killed and resumed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.whole_run import spade, whole_run

SIZES = {"maths": 4, "code": 2}
FAST = {"scripted__token_s": 0.0005, "scripted__learner_s": 0.01, "generator__count": 2}


def sources(folder: Path) -> str:
    """Both corpora as the value of the key; one row of the first is bad."""
    tables = []
    for name, num in SIZES.items():
        rows = [json.dumps({"text": f"{name} {i}"}) for i in range(num)]
        if name == "maths":
            rows.insert(3, '{"text": "cut')
        path = folder / f"{name}.jsonl"
        path.write_text("\n".join(rows))
        tables.append(f'{{path = "{path}", weight = {num / 4:g}}}')
    return f"[{', '.join(tables)}]"


@pytest.mark.timeout(180)
def test_no_document_comes_twice_before_all_of_its_source_even_over_a_kill(tmp_path: Path) -> None:
    values = FAST | {"train__steps": 40, "grounding__corpus": sources(tmp_path)}
    with whole_run(tmp_path / "run", None, **values) as run:
        run.start()
        run.wait_steps(3)
        run.kill_all()
        run.end(30.0)
        before = run.query("SELECT COUNT(*) FROM groups WHERE kind = 'design'")[0][0]
        run.values["train.steps"] = run.num_steps() + 3
        run.finish()
        drawn = [
            row[0]
            for row in run.query("SELECT document FROM groups WHERE kind = 'design' ORDER BY rowid")
        ]
        assert len(drawn) > before > 0
        for name, num in SIZES.items():
            own = [text for text in drawn if text.startswith(name)]
            assert len(own) > num, "else nothing is shown"
            for start in range(0, len(own), num):
                some = own[start : start + num]
                assert len(set(some)) == len(some)
        status = json.loads(spade("status", tmp_path / "run", "--json").out)
        assert status["corpus_bad_rows"] == 1.0
        log = (run.folder.logs / "coordinator.log").read_text()
        assert "line 4: not JSON: JSONDecodeError; it is skipped" in log
