"""`spade-async corpus`: build a corpus from what is installed, and look at one."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from spade_async.grounding.blocks import Blocks
from spade_async.grounding.build.corpus_file import Built, write_corpus
from spade_async.grounding.build.debian import debian_texts, num_files
from spade_async.grounding.build.docstrings import installed, installed_texts, stdlib_texts
from spade_async.grounding.document import BadRow
from spade_async.grounding.places import open_place
from spade_async.grounding.row_rule import RowRule
from spade_async.grounding.source import NAMED_ROWS
from spade_async.grounding.stdlib_docstrings import stdlib_docstrings


class Kind(enum.StrEnum):
    """What a corpus can be built from."""

    DEBIAN_DOCS = "debian-docs"
    STDLIB = "stdlib"
    DOCSTRINGS = "docstrings"


def build(kind: Kind, out: Path, *, words: int, root: Path, as_json: bool) -> None:
    """Write a corpus file and say what is in it.

    Raises:
        ConfigError: nothing to read, or the file cannot be written.
    """
    with _bar(f"reading {kind}") as begin:
        if kind is Kind.DEBIAN_DOCS:
            texts = debian_texts(root, begin(num_files(root)))
        elif kind is Kind.STDLIB:
            texts = stdlib_texts(begin(len(stdlib_docstrings())))
        else:
            texts = installed_texts(begin(sum(len(files) for _, files in installed())))
        built = write_corpus(texts, out, words=words)
    if as_json:
        print(json.dumps(_as_dict(built), indent=2))
        return
    console = Console(soft_wrap=True, highlight=False)
    console.print(escape(
        f"{built.path}: {built.num_passages} passages, {built.num_words} words, "
        f"{built.num_copies} copies left out\nsha256 of its lines {built.digest}"
    ))  # fmt: skip
    for licence, count in built.licences.most_common(8):
        console.print(escape(f"{count:>8}  {licence[:90]}"))
    if len(built.licences) > 8:
        console.print(
            f"          and {len(built.licences) - 8} further licences, named in the rows"
        )
    console.print(escape(f'Use it with grounding.corpus = "{built.path}"'))


def show(path: Path, *, form: str, words: int, as_json: bool) -> None:
    """Go through a corpus and say what a run would find in it.

    Raises:
        ConfigError: it cannot be read at all.
    """
    blocks = open_place(path, form, passage_words=words)
    with _bar(f"reading {path.name}") as begin:
        found = _survey(blocks, RowRule(words), begin(blocks.num_blocks))
    if as_json:
        print(json.dumps({**found, "path": str(path), "digest": blocks.digest}, indent=2))
        return
    lines = [
        f"{path}: {found['documents']} documents, {found['bad_rows']} bad rows, digest "
        f"{blocks.digest}",
        *(f"  skipped {row['place']}: {row['reason']}" for row in found["first_bad_rows"]),
    ]
    if found["sample"] is not None:
        sample = found["sample"]
        lines += [f"{found['mean_words']:.0f} words each", f"--- {sample['id']} ---"]
        lines.append(sample["text"][:1000])
    console = Console(soft_wrap=True, highlight=False)
    console.print("\n".join(map(escape, lines)))


def _survey(blocks: Blocks, rule: RowRule, seen: Callable[[], None]) -> dict[str, Any]:
    bad = [*blocks.skipped]
    num_bad, num_documents, num_words = len(bad), 0, 0
    sample: dict[str, str] | None = None
    for block in range(blocks.num_blocks):
        for row in blocks.rows(block):
            text = rule.text(row.content)
            if isinstance(text, str):
                num_documents += 1
                num_words += len(text.split())
                sample = sample or {"id": row.row_id, "text": text}
            else:
                num_bad += 1
                if len(bad) < NAMED_ROWS:
                    bad.append(BadRow(blocks.place(row.row_id), text.reason))
        seen()
    return {
        "documents": num_documents,
        "bad_rows": num_bad,
        "first_bad_rows": [{"place": row.place, "reason": row.reason} for row in bad[:NAMED_ROWS]],
        "mean_words": num_words / num_documents if num_documents else None,
        "sample": sample,
    }


def _as_dict(built: Built) -> dict[str, Any]:
    return {
        "path": str(built.path),
        "passages": built.num_passages,
        "words": built.num_words,
        "copies_left_out": built.num_copies,
        "sha256": built.digest,
        "licences": dict(built.licences.most_common()),
    }


@contextmanager
def _bar(what: str) -> Iterator[Callable[[int], Callable[[], None]]]:
    """A bar on stderr; call with the total, get what counts one."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:

        def begin(total: int) -> Callable[[], None]:
            task = progress.add_task(what, total=total)
            return lambda: progress.advance(task)

        yield begin
