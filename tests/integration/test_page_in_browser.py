"""The page of a run in a headless Chromium; skipped where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from spade_async.commands.html import build_page
from tests.support import browser
from tests.support.viewed_run import program
from tests.unit.view.test_page import HOSTILE, make_run

BINARY = browser.find()
pytestmark = [
    pytest.mark.skipif(BINARY is None, reason=browser.SKIP_REASON),
    pytest.mark.timeout(240),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build_page(make_run(tmp_path_factory.mktemp("page") / "run").close())


@pytest.mark.parametrize(
    ("size", "options"),
    [((360, 800), ()), ((1280, 900), ("--blink-settings=preferredColorScheme=0",))],
)
def test_nothing_is_wider_than_the_screen(page, tmp_path, size, options):
    assert BINARY is not None
    found = browser.measure(BINARY, tmp_path, page, size, *options)
    assert found["inner"] == size[0]
    assert found["scroll"] <= found["inner"]
    assert found["body"] <= found["inner"]
    assert found["wide"] == []
    assert len(found["plots"]) >= 5
    for name, width in found["plots"]:
        assert name
        # The axis numbers are 11 units of 360: below .75 of that they cannot be read.
        assert width >= 0.75 * 360
    # The only script is the one that measures; the title is the run's, not the program's.
    assert (found["scripts"], found["images"], found["title"]) == (1, 0, "run")
    shown = HOSTILE.replace("\x1b", "")
    assert program(1, f"# {shown}\n").strip() in [code.strip() for code in found["code"]]
    assert found["back"] == ("rgb(15, 19, 24)" if options else "rgb(255, 255, 255)")


def test_a_picture_of_the_phone_size_can_be_taken(page: str, tmp_path: Path) -> None:
    assert BINARY is not None
    file, picture = tmp_path / "page.html", tmp_path / "page.png"
    file.write_text(page)
    browser.run(BINARY, tmp_path, f"--screenshot={picture}", file.as_uri(), size=(360, 800))
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(head[16:20]), int.from_bytes(head[20:24])) == (360, 800)
