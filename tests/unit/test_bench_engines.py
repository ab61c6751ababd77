"""Engines beside each other: the cases, what is left out, whose CPU time counts."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benches.engines import contestants
from benches.engines.compared import BATCHES, cases, lines
from benches.engines.cpu_time import cpu_s
from spade_async.engine.vllm.installed import VllmInstall

pytestmark = pytest.mark.timeout(60)


def test_all_prompts_of_a_case_are_as_long_and_in_the_vocabulary() -> None:
    asked = cases(150, 64, 160)
    assert [len(asked[str(batch)]) for batch in BATCHES] == list(BATCHES)
    prompts = [prompt for requests in asked.values() for prompt, _ in requests]
    assert {len(prompt) for prompt in prompts} == {24}
    assert all(0 <= token < 150 for prompt in prompts for token in prompt)
    assert len({new for _, new in asked["joining"]}) == 57  # they leave at different steps
    longest = max(len(prompt) + new for prompt, new in asked["joining"])
    assert longest <= contestants.CONTEXT


def test_without_vllm_one_line_says_so_and_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = VllmInstall(None, False, False, "vLLM is not installed: pip install it")
    monkeypatch.setattr(contestants, "look", lambda: absent)
    text = lines({"rows": [], "left_out": contestants.left_out()})
    assert text[1:] == ["left out: vllm: vLLM is not installed: pip install it"]


def test_cpu_time_is_that_of_the_named_processes_too() -> None:
    work = "import time\nwhile time.process_time() < 0.5: pass\nprint(1, flush=True)\ninput()"
    child = subprocess.Popen(
        [sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        assert child.stdin is not None
        child.stdout.readline()
        alone, both = cpu_s(), cpu_s([child.pid])
        child.stdin.close()
    assert both - alone >= 0.45
