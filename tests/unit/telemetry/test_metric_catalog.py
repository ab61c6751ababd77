from __future__ import annotations

import re
from pathlib import Path

import pytest

from spade_async.telemetry.layout import GROUPS
from spade_async.telemetry.metrics import HISTOGRAMS, METRICS, TEXTS, find, page, part

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_page_is_the_catalog() -> None:
    assert PAGE.read_text() == page(), "python -m spade_async.telemetry.metrics > docs/metrics.md"


def test_every_metric_says_unit_axis_and_a_sentence() -> None:
    for metric in (*METRICS.values(), *TEXTS.values(), *HISTOGRAMS.values()):
        assert metric.unit
        assert metric.axis == "learner step"
        assert metric.text.endswith(".")


@pytest.mark.parametrize(
    "tag",
    ["regret/mean", "mix/family/mod", "jail/outcome/timed_out", "eval/level/3/accuracy",
     "jail/event/broker_died", "environments/7", "validity/stage/reset", "labels/mean/level"],
)  # fmt: skip
def test_tags_and_families_are_found(tag: str) -> None:
    assert find(tag) is not None


@pytest.mark.parametrize(
    "tag", ["regret/median", "mix/family", "mix/a/b/c", "eval/level/accuracy", "", "mix/a/b c"]
)
def test_other_tags_are_not_found(tag: str) -> None:
    assert find(tag) is None


def test_label_values_become_one_part_of_a_tag() -> None:
    assert find(f"mix/family/{part('a/b c')}") is not None
    assert find(f"mix/family/{part('')}") is not None
    assert len(part("x" * 500)) == 64


def test_layout_shows_only_tags_of_the_catalog() -> None:
    for charts in GROUPS.values():
        for tags in charts.values():
            for tag in tags:
                one = tag.replace("eval/level/.*", "eval/level/1/accuracy").replace("/.*", "/load")
                matches = [name for name in METRICS if re.fullmatch(tag, name)]
                assert matches or find(one) is not None, tag


def test_layout_fills_whole_rows_and_one_page() -> None:
    assert all(len(charts) in (4, 8, 12) for charts in GROUPS.values())
