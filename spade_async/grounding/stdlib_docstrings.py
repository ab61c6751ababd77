"""The default corpus: docstrings of the standard library, read as text from the installation.

The files belong to the Python that runs us and are trusted, unlike anything a model writes; they
are parsed and never imported (`this`, `antigravity` and friends act when imported).
"""

from __future__ import annotations

import ast
import functools
import logging
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from spade_async.errors import ConfigError
from spade_async.grounding.document import Document, cut_words

logger = logging.getLogger(__name__)

NAME = "stdlib-docstrings"
"""Value of `grounding.corpus` that names this corpus."""

MIN_WORDS = 12
"""A shorter docstring says too little to ground a task."""

MAX_FILE_BYTES = 200_000
"""Larger files are skipped; keeps the whole reading under about two seconds of CPU."""


def stdlib_documents(max_document_words: int) -> list[Document]:
    """Docstrings of at least `MIN_WORDS` words, sorted by id ``"module:qualname"``.

    Public top-level modules only: tests, idlelib, lib2to3 and site-packages are packages.
    Of several definitions with one name (branches of an ``if``) the first is kept.

    Raises:
        ConfigError: this Python comes without the source of its standard library.
    """
    documents = [
        Document(document_id, cut_words(text, max_document_words))
        for document_id, text in stdlib_docstrings()
    ]
    if not documents:
        raise ConfigError(
            f"grounding.corpus={NAME!r}: no docstrings under {sysconfig.get_path('stdlib')}: "
            f"this Python has no library source; give a JSON-lines file instead"
        )
    return documents


@functools.cache
def stdlib_docstrings() -> tuple[tuple[str, str], ...]:
    """(id, docstring) of all of them, sorted by id, uncut."""
    found: dict[str, str] = {}
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        if path.stem.startswith("_") or path.stat().st_size > MAX_FILE_BYTES:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                module = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError) as error:
            logger.warning("corpus: %s is skipped (%s)", path.name, type(error).__name__)
            continue
        for qualname, docstring in module_docstrings(module):
            if len(docstring.split()) >= MIN_WORDS:
                found.setdefault(f"{path.stem}:{qualname}", docstring)
    return tuple(sorted(found.items()))


def module_docstrings(module: ast.Module) -> Iterator[tuple[str, str]]:
    """(qualified name, docstring) of a parsed module, "" for its own."""
    return _walk(module, "")


def _walk(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, qualname: str
) -> Iterator[tuple[str, str]]:
    docstring = ast.get_docstring(node)
    if docstring:
        yield qualname, docstring
    if isinstance(node, ast.Module | ast.ClassDef):
        for child in node.body:
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _walk(child, f"{qualname}.{child.name}".lstrip("."))
