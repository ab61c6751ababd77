"""Docstrings of installed Python distributions, read as text and never imported."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from spade_async.grounding.build.passage import Text
from spade_async.grounding.stdlib_docstrings import module_docstrings, stdlib_docstrings

DISTRIBUTIONS = ("numpy", "scipy", "sympy", "networkx", "pandas", "scikit-learn")
"""Scientific libraries under BSD licences; those that are installed are read."""


def stdlib_texts(seen: Callable[[], None]) -> Iterator[Text]:
    """What the default corpus draws from."""
    for name, text in stdlib_docstrings():
        seen()
        yield Text(text, f"Python: {name}", "PSF-2.0")


def installed() -> list[tuple[str, list[Path]]]:
    """(distribution, its Python files but for tests), of those that are there."""
    found = []
    for name in DISTRIBUTIONS:
        try:
            files = metadata.distribution(name).files or []
        except metadata.PackageNotFoundError:
            continue
        wanted = [f for f in files if f.suffix == ".py" and "tests" not in f.parts]
        found.append((name, sorted(Path(str(f.locate())) for f in wanted)))
    return found


def installed_texts(seen: Callable[[], None]) -> Iterator[Text]:
    """Docstrings of `DISTRIBUTIONS`, in a stable order."""
    for name, paths in installed():
        licence = _licence(name)
        for path in paths:
            seen()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    module = ast.parse(path.read_bytes())
            except (OSError, SyntaxError, ValueError):
                continue
            for qualname, text in module_docstrings(module):
                yield Text(text, f"{name}: {path.stem}:{qualname}", licence)


def _licence(name: str) -> str:
    facts = metadata.metadata(name)
    for key in ("License-Expression", "License"):
        stated = "".join(facts.get_all(key) or []).strip()
        if stated:
            return stated.splitlines()[0][:80]
    classified = [c for c in facts.get_all("Classifier") or [] if c.startswith("License ::")]
    return classified[0].rpartition(" :: ")[2] if classified else "unknown"
