from __future__ import annotations

from pathlib import Path

from spade_async.config.load import flatten
from spade_async.config.reference import page
from spade_async.config.schema import Config

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_page_is_the_schema() -> None:
    remedy = "python -m spade_async.config.reference > docs/configuration.md"
    assert PAGE.read_text() == page(), remedy


def test_every_key_has_a_row() -> None:
    rows = {line.split("`")[1] for line in page().splitlines() if line.startswith("| `")}
    assert rows == set(flatten(Config()))


def test_every_key_has_a_meaning() -> None:
    for line in page().splitlines():
        if line.startswith("| `"):
            assert not line.endswith("|  |"), line
