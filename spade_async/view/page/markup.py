"""Text to HTML. Everything that is not of this package goes through `escaped`."""

from __future__ import annotations

import html

from spade_async.environment.text import clean

SOURCE_CHARS = 20_000
"""Longest program on a page."""
TEXT_CHARS = 2_000
"""Longest other text."""


def escaped(text: object, limit: int = TEXT_CHARS) -> str:
    """Safe as content and as a quoted attribute: no markup, no control or bidi characters."""
    return html.escape(clean(str(text), limit), quote=True)


def number(value: float | None, form: str = ".3f") -> str:
    """A number, "–" where there is none."""
    return "–" if value is None else format(value, form)


def with_error(value: float | None, error: float | None, form: str = ".3f") -> str:
    """A number with its standard error, which has no sign whatever the form."""
    if error is None:
        return number(value, form)
    return f"{number(value, form)} ± {error:{form.lstrip('+')}}"


def table(head: list[str], rows: list[list[str]], *, kind: str = "") -> str:
    """An HTML table; cells are HTML already."""
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{c}</td>" for c in row[1:])}</tr>'
        for row in rows
    )
    said = f"<thead><tr>{top}</tr></thead>" if head else ""
    return f'<table class="{kind}">{said}<tbody>{body}</tbody></table>'
