from __future__ import annotations

import dataclasses
import io
import json
import random
import re
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from spade_async.commands.show import show
from spade_async.environment.contract import environment_id, skeleton
from spade_async.environment.text import few_lines
from spade_async.errors import ConfigError, LedgerError, RunFolderError
from spade_async.ledger.schema import UPGRADES
from spade_async.ledger.traces import pack_trace
from spade_async.types import Environment, MissingRegret, RegretClass
from spade_async.view.environment import look
from spade_async.view.find import find
from spade_async.view.run import opened
from tests.support.ledger_rows import batch_row, report
from tests.support.viewed_run import (
    BOTH_LOSE,
    BOTH_WIN,
    HINT_HELPS,
    SEEDS,
    RunMaker,
    program,
    trace,
)


@pytest.fixture
def maker(tmp_path: Path) -> RunMaker:
    return RunMaker(tmp_path / "run")


def printed(run: Path, name: str, *, width: int = 80, seed: int | None = None) -> str:
    console = Console(file=io.StringIO(), width=width)
    show(run, name, seed=seed, as_json=False, console=console)
    return str(console.file.getvalue())  # type: ignore[attr-defined]  # a StringIO


def test_the_first_seed_where_the_arms_differ_is_shown_with_both_transcripts(maker):
    name = maker.environment([BOTH_LOSE, HINT_HELPS, HINT_HELPS, BOTH_WIN], words_of=(0, 1, 2, 3))
    maker.step(["d-0000000.0"])
    run = maker.close()
    with opened(run) as viewed:
        found = look(viewed, find(viewed, name)).as_dict()
        other = look(viewed, find(viewed, name), SEEDS[3]).as_dict()
    assert (found["shown_seed"], found["shown_because"]) == (
        SEEDS[1], "the first where the arms differ",
    )  # fmt: skip
    assert found["arms"]["no_hint"]["episode_return"] == 0.0
    assert found["arms"]["with_hint"]["episode_return"] == 1.0
    assert found["arms"]["with_hint"]["hint"] == "it is 7"
    assert found["arms"]["no_hint"]["transcript"] == [
        {"action": "7", "observation": "done", "reward": 0.0}
    ]
    assert other["shown_seed"] == SEEDS[3]
    # Differences 0, 1, 1, 0: mean .5, standard error std(ddof 1) / 2 = sqrt(1/3) / 2.
    assert found["regret"]["regret"] == 0.5
    assert found["regret"]["standard_error"] == pytest.approx((1 / 3) ** 0.5 / 2)
    assert found["regret_lower_bound"] == pytest.approx(0.5 - (1 / 3) ** 0.5)
    design = found["designs"][0]
    assert (design["document"], design["skill"], design["trained_version"]) == (
        "a document", "Arithmetic", "0.1",
    )  # fmt: skip
    assert (design["advantage"], design["staleness"], design["reward"]) == (0.25, 1, 0.25)
    from spade_async.environment.contract import environment_id

    assert design["exemplar_ids"] == [environment_id(program(99))]
    assert found["design_tokens"]["versions"] == [None] * 3 + ["0.0"] * 2 + ["0.1"] * 2
    assert found["design_tokens"]["generator_logprobs"][3:] == [-0.5] * 4


@pytest.mark.parametrize("width", [40, 80, 200])
def test_it_fits_the_width_and_loses_nothing(maker, width):
    name = maker.environment([HINT_HELPS, BOTH_WIN], document="word " * 400)
    run = maker.close()
    text = printed(run, name[:6], width=width)
    assert max(map(len, text.splitlines())) <= width
    for part in (name, "class EchoEnv", "it is 7", "without hint", "with hint", "doc-0", "0.0"):
        assert part in text
    assert "[a]" in text
    assert "\x1b" not in text


def test_escape_sequences_of_a_program_do_not_reach_the_terminal(maker):
    bad = program(0, "# \x1b[2J\x1b]0;owned\x07 \u202e [bold]markup[/bold] [/nope]\n")
    name = maker.environment([HINT_HELPS, BOTH_WIN], source=bad, document=bad, action="\x1b[2J")
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="256")
    show(maker.close(), name, seed=None, as_json=False, console=console)
    text = console.file.getvalue()
    assert "\x1b[2J" not in text
    assert "\x1b]0" not in text
    assert "\u202e" not in text
    assert "markup[/bold]" in printed(maker.folder, name)


@pytest.mark.parametrize("line", ["", "x = 1", "#"])
def test_a_program_of_very_many_lines_is_cut_by_the_line(maker, line):
    name = maker.environment([HINT_HELPS, BOTH_WIN], source=program(0, f"{line}\n" * 9_000))
    text = printed(maker.close(), name)
    assert len(text.splitlines()) < 2_200
    assert re.search(r"\.\.\. and 7\d\d\d more lines", text)


def test_few_lines_cuts_nothing_that_fits():
    assert few_lines("a\nb\n", 2) == "a\nb\n"
    assert few_lines("a\nb\nc", 2) == "a\nb\n... and 1 more line"
    assert few_lines("\n" * 100_000, 3) == "\n\n\n... and 99997 more lines"


def test_a_reason_that_looks_like_markup_is_shown_as_it_is(maker):
    # It ended `show` with a traceback of the terminal library.
    source = program(0)
    name = environment_id(source)
    made = Environment(environment_id=name, source=source, skeleton=skeleton(source))
    with maker.ledger.transaction():
        maker.ledger.add_environment(made, "d-0", "d-0.0", 1)
        maker.ledger.set_estimate(name, MissingRegret("step: ValueError: [/nope] [red]\x1b[2J"))
    text = printed(maker.close(), name)
    assert "[/nope] [red]" in text
    assert "\x1b" not in text


def test_words_choose_by_class_then_by_the_lower_bound(maker):
    sure = maker.environment([HINT_HELPS, HINT_HELPS, HINT_HELPS, BOTH_WIN])
    maker.environment([HINT_HELPS, BOTH_LOSE, BOTH_LOSE, BOTH_WIN])
    # The largest regret of all, but the hint is the answer.
    maker.environment([HINT_HELPS] * 4, leak_share=1.0)
    worst = maker.environment([BOTH_LOSE] * 4, RegretClass.OUT_OF_REACH)
    latest = maker.environment([BOTH_WIN] * 4, RegretClass.MASTERED)
    run = maker.close()
    with opened(run) as viewed:
        found = {w: find(viewed, w).environment.environment_id for w in ("best", "worst", "latest")}
        assert find(viewed, "d-0000000.0").environment.environment_id == sure
    # Sure: .75 - 2 * .25 = .25; the leaking one keeps nothing of 1.0.
    assert found == {"best": sure, "worst": worst, "latest": latest}


def test_unknown_and_ambiguous_ids_name_the_nearest(maker):
    ids = sorted(maker.environment([HINT_HELPS, BOTH_WIN]) for _ in range(20))
    run = maker.close()
    with opened(run) as viewed:
        wanted = ids[7][:5] + "zzzz"
        with pytest.raises(RunFolderError, match=f"nearest {ids[7]}"):
            find(viewed, wanted)
        with pytest.raises(RunFolderError, match="did you mean 'latest'"):
            find(viewed, "lastest")
        shared = next(c for c in "0123456789abcdef" if sum(i[0] == c for i in ids) > 1)
        with pytest.raises(RunFolderError, match="write more of it"):
            find(viewed, shared)
        with pytest.raises(RunFolderError, match="--seed 5 was not played; played were: 11, 22"):
            look(viewed, find(viewed, ids[0]), 5)


def test_a_run_without_environments_says_so(maker):
    run = maker.close()
    for word in ("best", "latest", "abc"):
        with pytest.raises(RunFolderError, match="has no environments yet"):
            printed(run, word)


def test_json_is_whole(maker, capsys):
    name = maker.environment([HINT_HELPS, BOTH_WIN])
    show(maker.close(), name, seed=None, as_json=True, console=Console())
    found = json.loads(capsys.readouterr().out)
    assert found["source"] == program(0)
    assert found["environment_id"] == name
    assert found["play"]["seeds"][1]["no_hint"]["episode_return"] == 1.0


def test_a_scripted_run_has_no_tokenizer_to_look_for(maker):
    """Its model folder has a tokenizer.json that stands in for one; transformers warns of it."""
    maker.environment([HINT_HELPS, BOTH_WIN])
    folder = maker.close()
    for name in ("model", "checkpoints/branch-0-step-1"):
        (folder / name).mkdir(parents=True)
        (folder / name / "tokenizer.json").write_text("{}")
    with opened(folder) as run:
        assert [path.name for path in run.model_folders] == ["nano", "branch-0-step-1"]
        run.config["engine"]["kind"] = "scripted"
        assert run.model_folders == []


def test_a_living_run_can_be_looked_at(maker):
    name = maker.environment([HINT_HELPS, BOTH_WIN])
    with maker.ledger.transaction():
        maker.ledger.put_state("x", 1)
        assert name in printed(maker.folder, "latest")


def test_a_ledger_of_schema_2_is_shown(maker):
    name = maker.environment([HINT_HELPS, BOTH_WIN])
    run = maker.close()
    raw = sqlite3.connect(run / "ledger.sqlite")
    for table in re.findall(r"CREATE TABLE (\w+)", UPGRADES[3]):
        raw.execute(f"DROP TABLE {table}")
    raw.execute("UPDATE meta SET value = '2' WHERE key = 'schema'")
    raw.commit()
    raw.close()
    assert name in printed(run, "best")


def test_what_is_no_run_or_damaged_is_one_clear_line(maker, tmp_path):
    maker.environment([HINT_HELPS, BOTH_WIN], document="long " * 20000)
    run = maker.close()
    with pytest.raises(ConfigError, match="is not a run folder"):
        printed(tmp_path, "best")
    ledger = run / "ledger.sqlite"
    whole = ledger.read_bytes()
    for size in (0, 50, 4096, len(whole) // 2):
        ledger.write_bytes(whole[:size])
        with pytest.raises(LedgerError, match="ledger"):
            printed(run, "best")
    ledger.write_bytes(b"x" * 100_000)
    with pytest.raises(LedgerError, match="restore it from a copy"):
        printed(run, "best")


def test_a_changed_byte_anywhere_is_a_clear_line_or_does_not_matter(maker):
    maker.environment([HINT_HELPS, BOTH_WIN])
    run = maker.close()
    whole = (run / "ledger.sqlite").read_bytes()
    rng = random.Random(5)
    told: list[str] = []
    for _ in range(40):
        damaged = bytearray(whole)
        for _ in range(rng.choice((1, 30, 300))):
            damaged[rng.randrange(100, len(whole))] = rng.randrange(256)
        (run / "ledger.sqlite").write_bytes(damaged)
        try:
            printed(run, "best")
        except (LedgerError, RunFolderError) as error:
            told.append(str(error))
    assert len(told) > 5
    assert not [text for text in told if "\n" in text]


def test_sequences_of_a_sample_are_told_apart(maker):
    name = maker.environment([HINT_HELPS, BOTH_WIN])
    in_two = dataclasses.replace(trace(), starts=(0, 5))
    with maker.ledger.transaction():
        maker.ledger._db.execute(
            "UPDATE traces SET block = ? WHERE sample_id = ?", (pack_trace(in_two), "d-0000000.0")
        )
    text = printed(maker.close(), name)
    before, _, after = text.partition("--- sequence 2 ---")
    # Three given tokens and two of weights 0.0 in the first, two of 0.1 in the second.
    assert before.splitlines()[-1] == "[-]0 1 2 [a]3 4 "
    assert after.splitlines()[1] == "[b]5 6 "


def test_a_token_far_from_weight_1_is_underlined_and_listed(maker):
    name = maker.environment([HINT_HELPS, BOTH_WIN])
    said = {
        "token_logprobs": np.array([-0.5, -0.4, -0.6, -0.5], np.float32),
        "token_weights": np.array([1.0, 1.25, 0.95, 1.0], np.float32),
    }
    ledger = maker.ledger
    with ledger.transaction():
        ledger.plan_batch(1, 0, 1, [batch_row("d-0000000.0", "d-0000000")])
    with ledger.transaction(full=True):
        ledger.consume_batch(1, report(0, 1, ["d-0000000.0"], **said), 1.0)
    run = maker.close()
    with opened(run) as viewed:
        tokens = look(viewed, find(viewed, name)).as_dict()["design_tokens"]
    assert tokens["weights"] == [None] * 3 + [1.0, 1.25, pytest.approx(0.95), 1.0]
    assert tokens["learner_logprobs"][4] == pytest.approx(-0.4)
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
    show(run, name, seed=None, as_json=False, console=console)
    # The program above is underlined in places too.
    text = console.file.getvalue().partition("tokens of the design")[2]
    # The second sampled token, of weights 0.0 (cyan), and no other one.
    assert "\x1b[4;36m4 \x1b[0m" in text
    assert text.count("\x1b[4;") == 1
    assert "1 of 4 further than 0.1 from 1" in printed(run, name, width=200)
