"""The verbs of `spade-async corpus`. Imports nothing heavy; each verb imports its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Build corpora, and look at them.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.command("build")
def corpus_build(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="debian-docs: /usr/share/doc, man pages, info. stdlib: docstrings of Python. "
            "docstrings: of numpy, scipy, sympy, networkx, pandas, scikit-learn, where installed.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="New file, .jsonl or .jsonl.gz.")],
    words: Annotated[int, typer.Option(min=50, max=20_000, help="Words of a passage.")] = 500,
    root: Annotated[
        Path, typer.Option(metavar="DIR", help="Where usr/share is, e.g. after dpkg -x.")
    ] = Path("/"),
    json_output: Json = False,
) -> None:
    """Write a corpus of passages from what is installed; each with its source and licence."""
    from spade_async.commands import corpus as command

    if kind not in list(command.Kind):
        raise typer.BadParameter(f"{kind!r}: choose one of {', '.join(command.Kind)}")
    command.build(command.Kind(kind), out, words=words, root=root, as_json=json_output)


@app.command("show")
def corpus_show(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="File or folder.")],
    form: Annotated[
        str, typer.Option("--format", help="auto, jsonl, parquet, arrow or text.")
    ] = "auto",
    words: Annotated[int, typer.Option(min=10, help="Longer documents are cut.")] = 200,
    json_output: Json = False,
) -> None:
    """Go through a corpus: how many documents, which rows are bad, one document."""
    from spade_async.commands import corpus as command

    if form not in ("auto", "jsonl", "parquet", "arrow", "text"):
        raise typer.BadParameter(f"--format {form}: choose auto, jsonl, parquet, arrow or text")
    command.show(path, form=form, words=words, as_json=json_output)
