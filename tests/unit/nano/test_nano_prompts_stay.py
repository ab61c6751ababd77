"""The nano model's prompts, ids and masks are those it was warm-started with, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

from spade_async.domain import DesignRequest, design_prompt
from spade_async.nano import domain
from tests.support.nano_prompts import found

STORED = Path(__file__).parents[2] / "golden" / "nano_prompts.json"


def test_prompts_and_masks_are_the_stored_ones() -> None:
    assert found() == json.loads(STORED.read_text())


def test_nothing_of_a_request_but_skill_and_document_reaches_the_prompt() -> None:
    request = DesignRequest(
        skill="Mathematical Reasoning", document="sorted things", skill_description="x",
        ideas=("y",), exemplars=({"source": "z", "kind": "avoid"},), route="multi_turn",
        max_turns=9,
    )  # fmt: skip
    wanted = domain.designer_messages(
        skill="Mathematical Reasoning", document="sorted things", exemplars=[]
    )
    assert design_prompt(domain, request) == wanted
