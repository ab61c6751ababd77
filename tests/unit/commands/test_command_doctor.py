"""`doctor CONFIG`: a configuration is a finding like any other."""

from __future__ import annotations

from pathlib import Path

from spade_async.commands.doctor_config import config_findings

CONFIGS = Path(__file__).parents[3] / "configs"


def test_it_says_whether_the_bounds_are_free_or_throttle(tmp_path: Path) -> None:
    first, corpus, agent, designer = config_findings(CONFIGS / "nano.toml")
    assert (first.name, first.ok) == ("configuration", True)
    assert (corpus.name, corpus.ok) == ("corpus", True)
    assert (agent.name, designer.name) == ("staleness", "staleness")
    assert "async.agent_bound=4 is free" in agent.detail
    tight = tmp_path / "tight.toml"
    tight.write_text(
        f'extends = "{CONFIGS / "scripted.toml"}"\n[async]\nagent_bound = 1\ndesigner_bound = 2\n'
        "[agent]\ngroups_per_step = 2\n[designer]\ngroups_per_step = 1\ngroup_size = 2\n"
    )
    _, _, agent, _ = config_findings(tight)
    assert not agent.ok
    assert not agent.needed
    assert "async.agent_bound=1 will throttle the generators" in agent.detail


def test_a_configuration_that_does_not_hold_is_named(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[async]\nagent_bound = -1\n")
    (found,) = config_findings(wrong)
    assert not found.ok
    assert found.needed
    assert "async.agent_bound" in found.detail
    assert config_findings(None) == []


def test_a_corpus_without_a_document_is_found_before_a_run(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"body": "no text"}\n[1]\nnot JSON\n')
    file = tmp_path / "x.toml"
    file.write_text(f'[grounding]\ncorpus = "{rows}"\n')
    corpus = config_findings(file)[1]
    assert (corpus.name, corpus.ok, corpus.needed) == ("corpus", False, True)
    assert f"{rows}' holds no usable document (3 bad rows, first line 1: " in corpus.detail
