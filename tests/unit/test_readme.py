"""The README leads to every page, command, bench and configuration; no link leads nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from spade_async import cli

ROOT = Path(__file__).parents[2]
CODE = ROOT / "spade_async"
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Names that headings of a page have, as GitHub makes them."""
    headings = _HEADING.findall(_FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def test_every_page_is_linked() -> None:
    missing = [p.name for p in (ROOT / "docs").glob("*.md") if f"(docs/{p.name}" not in README]
    assert missing == []


def test_every_command_is_named() -> None:
    commands = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    assert [c for c in commands if f"spade-async {c}" not in README] == []


def test_every_bench_and_configuration_is_named() -> None:
    benches = {p.stem for p in (ROOT / "benches").glob("*.py") if not p.stem.startswith("_")}
    named = [line for line in README.splitlines() if "python -m benches" in line]
    assert [b for b in sorted(benches) if not any(re.search(rf"\b{b}\b", n) for n in named)] == []
    configs = [p.name for p in (ROOT / "configs").glob("*.toml")]
    assert [c for c in configs if f"configs/{c}" not in README] == []


@pytest.mark.parametrize("page", ["architecture", "algorithm", "compat"])
def test_files_that_explain_the_engine_are_there(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    named = set(re.findall(r"`([\w./-]+(?:\.py|/))`", text))
    assert [f for f in sorted(named) if not any((r / f).exists() for r in (ROOT, CODE))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_no_link_leads_nowhere(page: Path) -> None:
    broken = []
    for target, anchor in _LINK.findall(_FENCE.sub("", page.read_text())):
        if target.startswith(("http:", "https:")):
            continue
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(f"{target}#{anchor}" if anchor else target)
    assert broken == []
