from __future__ import annotations

import html.parser
import re
from importlib import resources
from pathlib import Path

import pytest

from spade_async.commands.html import build_page, write_page
from spade_async.errors import LedgerError, RunFolderError
from spade_async.types import PolicyVersion, RegretClass
from spade_async.view.page.plot import MOST_POINTS, Plot, Series, label, svg, thinned, ticks
from tests.support.viewed_run import BOTH_LOSE, BOTH_WIN, HINT_HELPS, RunMaker, program

HOSTILE = (
    "</script></pre><script>document.title='owned'</script><img src=x onerror=alert(1)>\x1b[2J"
)


class Tags(html.parser.HTMLParser):
    """Every start tag with its attributes; void ones are not waited for."""

    VOID = frozenset({"meta", "link", "br", "img", "line", "path", "circle"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def make_run(folder: Path, steps: int = 12) -> RunMaker:
    """A run with hostile text in every place that a model or a document can reach."""
    maker = RunMaker(folder)
    maker.environment([HINT_HELPS, HINT_HELPS, BOTH_LOSE, BOTH_WIN])
    maker.environment(
        [HINT_HELPS] * 4, source=program(1, f"# {HOSTILE}\n"), document=HOSTILE, action=HOSTILE,
        hint=HOSTILE,
    )  # fmt: skip
    maker.environment(
        [BOTH_LOSE] * 4, RegretClass.OUT_OF_REACH, source=program(2, "# " + "x" * 3000),
        action="y" * 300, document="z" * 900,
    )  # fmt: skip
    for number in range(3, 8):
        maker.environment([BOTH_WIN] * 4, RegretClass.MASTERED, source=program(number))
    for step in range(1, steps + 1):
        metrics = {
            "regret/mean": 0.5 - step / 100, "designer/validity": 1.0, "staleness/agent_mean": 1.0,
            "staleness/agent_max": 3.0, "regret/frontier_share": 0.5, "rate/episodes_per_hour": 9e5,
        }  # fmt: skip
        maker.step([f"d-000000{step - 1}.0"] if step <= 8 else [], metrics)
    ledger = maker.ledger
    with ledger.transaction():
        for ordinal in (0, steps):
            for level in ("1", "2"):
                mean = 0.25 * int(level) + ordinal / 100
                ledger.add_eval(ordinal, PolicyVersion(0, ordinal), level, 96, mean, 0.05)
        ledger.add_alert(1.0, 3, HOSTILE)
    return maker


def test_the_page_asks_for_nothing_and_runs_nothing(tmp_path):
    page = build_page(make_run(tmp_path / "run").close())
    tags = Tags(page)
    assert tags.open == []
    names = {tag for tag, _ in tags.found}
    assert not names & {"script", "img", "iframe", "object", "embed", "form"}
    for tag, attributes in tags.found:
        assert not [name for name in attributes if name.startswith("on")], tag
        for name in ("href", "src"):
            assert attributes.get(name) in (None, "data:,"), (tag, attributes)
    assert "url(" not in page
    assert "http:" not in page
    assert "https:" not in page
    (policy,) = [a["content"] for t, a in tags.found if t == "meta" and "http-equiv" in a]
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_hostile_text_is_shown_as_text(tmp_path):
    page = build_page(make_run(tmp_path / "run").close())
    assert "\x1b" not in page
    assert "<script" not in page
    # In the program, the document, the action, the hint and the alert.
    assert page.count("onerror=alert(1)") >= 5
    assert "&lt;img src=x onerror" in page


def test_figures_plots_and_environments_are_there(tmp_path):
    page = build_page(make_run(tmp_path / "run").close())
    assert 'content="width=device-width, initial-scale=1"' in page
    labels = [a["aria-label"] or "" for t, a in Tags(page).found if a.get("role") == "img"]
    assert any(text.startswith("Regret: regret from 0.49 at step 1 to 0.38") for text in labels)
    assert any("level 1 from 0.25 at step 0 to 0.37 at step 12" in text for text in labels)
    # No metric, no plot.
    assert not any("Skeleton" in text for text in labels)
    assert "0.250 ± 0.050" in page
    assert page.count('class="environment"') == 8
    assert "designer.group_size" in page


def test_a_run_without_steps_and_one_without_ledger(tmp_path):
    page = build_page(RunMaker(tmp_path / "empty").close())
    for sentence in (
        "No learner step yet.",
        "Nothing was scored yet.",
        "None.",
        "has a regret yet",
    ):
        assert sentence in page
    run = make_run(tmp_path / "run").close()
    (run / "ledger.sqlite").write_bytes((run / "ledger.sqlite").read_bytes()[:9000])
    with pytest.raises(LedgerError, match="ledger"):
        write_page(run, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_a_page_that_cannot_be_written_leaves_no_half(tmp_path):
    run = RunMaker(tmp_path / "run").close()
    assert write_page(run, tmp_path / "page.html") == (tmp_path / "page.html").stat().st_size
    with pytest.raises(RunFolderError, match="choose another --html"):
        write_page(run, tmp_path / "nowhere" / "page.html")
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(RunFolderError, match="cannot be written"):
        write_page(run, tmp_path / "folder.html")
    assert not list(tmp_path.glob("**/.*.part"))


def test_ticks_are_round_and_within():
    assert ticks(0, 1) == pytest.approx([0, 0.5, 1])
    assert ticks(-0.3, 0.3) == pytest.approx([-0.2, 0, 0.2])
    assert ticks(1, 250) == pytest.approx([100, 200])
    assert ticks(5, 5) == [5]
    assert [label(v) for v in (0.25, 12, 34_000, 1.2e6, -1e-17)] == [
        "0.25", "12", "34k", "1.2M", "0",
    ]  # fmt: skip


def test_points_stand_where_their_values_are():
    drawn = svg(Plot("p", "u", (Series("a", ((0, 0.0), (10, 1.0))),), low=0.0, high=1.0))
    # Left 44, right 352, bottom 166, top 8.
    assert 'd="M44.0 166.0L352.0 8.0"' in drawn
    assert svg(Plot("p", "u", (Series("a", ()),))) == ""
    flat = svg(Plot("p", "u", (Series("a", ((3, 2.0),)),)))
    assert "a 2 at step 3" in flat


def test_a_long_run_is_averaged():
    series = thinned(Series("a", tuple((float(i), float(i % 2)) for i in range(100_000))))
    assert len(series.points) <= MOST_POINTS
    assert series.points[5][1] == pytest.approx(0.5, abs=0.01)


def test_text_can_be_read_in_both_modes():
    """WCAG 2: contrast of small text at least 4.5, of lines at least 3."""
    style = resources.files("spade_async.view.page").joinpath("page.css").read_text()
    light, dark = (
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", part))
        for part in re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    )
    assert light.keys() == dark.keys()

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for mode in (light, dark):
        for behind in ("back", "card"):
            for name in mode.keys() - {"back", "card", "line"}:
                high, low = sorted((luminance(mode[name]), luminance(mode[behind])))[::-1]
                contrast = (high + 0.05) / (low + 0.05)
                assert contrast >= (3.0 if re.fullmatch(r"s\d", name) else 4.5), (name, behind)
