"""Plain text out of man pages (roff), info files and HTML; enough for reading, not for printing."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_FONT = re.compile(r"\\f(?:\[[^\]]*\]|\(..|.)")
_SIZE = re.compile(r"\\s[-+]?\d+")
_STRING = re.compile(r"\\\*(?:\[[^\]]*\]|\(..|.)")
_GLYPHS = {
    "\\-": "-", "\\(em": "-", "\\(en": "-", "\\(hy": "-", "\\(aq": "'", "\\(dq": '"',
    "\\(lq": '"', "\\(rq": '"', "\\(bu": "*", "\\(co": "(c)", "\\e": "\\", "\\&": "", "\\|": "",
    "\\^": "", "\\,": "", "\\/": "", "\\~": " ", "\\ ": " ", "\\0": " ", "\\(ti": "~",
    "\\(ha": "^", "\\:": "", "\\%": "", "\\c": "", "\\(rs": "\\", "\\(->": "->", "\\(<=": "<=",
    "\\(>=": ">=", "\\(mu": "x", "\\(pl": "+", "\\'": "'", "\\`": "`",
}  # fmt: skip
_GLYPH = re.compile("|".join(map(re.escape, sorted(_GLYPHS, key=len, reverse=True))))
_OTHER = re.compile(r"\\(?:\([^ ]{2}|\[[^\]]*\]|[hvwlLD]'[^']*'|.)")
_HEADINGS = {"SH", "Sh", "SS", "Ss"}
_SPACED = {"PP", "P", "LP", "Pp", "TP", "IP", "sp", "HP", "It"}
_SILENT = {
    "TH", "Dd", "Dt", "Os", "so", "de", "ds", "nr", "ie", "el", "if", "ft", "ad", "na", "hy", "nh",
    "ne", "in", "ti", "ta", "RS", "RE", "nf", "fi", "EX", "EE", "UR", "UE", "MT", "ME", "Bl", "El",
    "Bd", "Ed", "br", "ll", "PD", "DT", "tr", "ig", "rm", "als", "rr", "cs", "bd", "ss", "fp",
}  # fmt: skip


def roff(text: str) -> str:
    """The words of a man page, man or mdoc macros; definitions and conditions are left out."""
    lines: list[str] = []
    skips_to: str | None = None
    depth = 0
    for line in text.split("\n"):
        if skips_to is not None:
            skips_to = None if line.startswith(skips_to) else skips_to
            continue
        if depth or line.startswith((".if", ".ie", ".el", "'if", "'ie", "'el")):
            depth = max(0, depth + line.count("\\{") - line.count("\\}"))
            continue
        if not line.startswith((".", "'")):
            lines.append(_plain(line))
            continue
        name, _, rest = line[1:].strip().partition(" ")
        if name in ("de", "de1", "am", "ig"):
            skips_to = ".."
        elif name in _HEADINGS:
            lines += ["", _plain(_arguments(rest))]
        elif name in _SPACED:
            lines.append("")
            if name in ("IP", "It") and rest:
                lines.append(_plain(_arguments(rest)))
        elif name in _SILENT or not name or name.startswith("\\"):
            continue
        elif rest:
            lines.append(_plain(_arguments(rest)))
    return "\n".join(lines)


def _arguments(rest: str) -> str:
    return rest.replace('""', '"').replace('"', "")


def _plain(line: str) -> str:
    line = line.partition('\\"')[0]
    line = _STRING.sub("", _SIZE.sub("", _FONT.sub("", line)))
    return _OTHER.sub("", _GLYPH.sub(lambda match: _GLYPHS[match[0]], line))


def info(text: str) -> str:
    """The words of an info file: nodes without their headers, menus and tag tables."""
    kept: list[str] = []
    for node in text.split("\x1f"):
        if node.lstrip().startswith(
            ("Tag Table:", "End Tag Table", "Indirect:", "Local Variables")
        ):
            continue
        in_menu = False
        for number, line in enumerate(node.strip("\n").split("\n")):
            if number == 0 and line.startswith("File:"):
                continue
            if line.startswith("* Menu:"):
                in_menu = True
            if in_menu and (line.startswith("*") or not line.strip() or line.startswith("  ")):
                continue
            in_menu = False
            kept.append(line)
        kept.append("")
    return "\n".join(kept)


class _Text(HTMLParser):
    """Collects what a reader sees."""

    HIDDEN = frozenset({"script", "style", "head", "nav", "svg"})
    BLOCKS = frozenset(
        [
            "p",
            "div",
            "li",
            "tr",
            "h1",
            "h2",
            "h3",
            "h4",
            "h5",
            "h6",
            "pre",
            "br",
            "dt",
            "dd",
            "table",
            "section",
        ]
    )

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in self.HIDDEN
        if tag in self.BLOCKS:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = max(0, self._hidden - (tag in self.HIDDEN))
        if tag in self.BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data)


def html(text: str) -> str:
    """The words of a page."""
    parser = _Text()
    parser.feed(text)
    parser.close()
    return "".join(parser.parts)
