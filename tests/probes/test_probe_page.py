"""docs/probes.md names tests: each of them is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "probes.md").read_text()


def test_every_test_and_file_the_page_names_exists() -> None:
    files = [path for path in (ROOT / "tests").rglob("test_*.py")]
    names = {
        name
        for path in files
        for name in re.findall(r"^(?:async )?def test_(\w+)", path.read_text(), re.MULTILINE)
    }
    cited = re.findall(r"`([a-z0-9_]+(?:\.\.\.)?)`", PAGE)
    cited = [name for name in cited if name.count("_") >= 3]
    assert len(cited) > 50
    unknown = [
        name
        for name in cited
        if not any(
            known.startswith(name[:-3]) if name.endswith("...") else known == name
            for known in names
        )
    ]
    assert unknown == []
    known_files = {path.relative_to(ROOT / "tests").as_posix() for path in files}
    known_files |= {path.name for path in files if path.parent.name == "probes"}
    cited_files = set(re.findall(r"`((?:\w+/)*test_\w+\.py)`", PAGE))
    assert cited_files - known_files == set()
