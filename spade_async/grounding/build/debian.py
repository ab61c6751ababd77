"""Documentation that Debian packages install: /usr/share/doc, man pages and info files.

Also out of packages that were only unpacked (``dpkg -x``) into a folder that is given as the root.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from spade_async.grounding.build import markup
from spade_async.grounding.build.passage import Text

MAX_FILE_BYTES = 8 << 20
"""Of a larger file, unpacked, only the beginning is read."""
_SUFFIXES = {"", ".txt", ".md", ".rst", ".text", ".html", ".htm", ".xhtml"}
_SKIPPED = re.compile(
    r"^(copyright|changelog|changes|news\.debian|authors|thanks|credits|contributors|maintainers|"
    r"buildinfo|todo|license|licence|copying|install|objects\.inv|searchindex|genindex|_sources)",
    re.IGNORECASE,
)
_LICENCES = (
    ("GNU Free Documentation License", "GFDL"),
    ("GNU Lesser General Public", "LGPL"),
    ("GNU Library General Public", "LGPL"),
    ("GNU General Public", "GPL"),
    ("Apache License", "Apache"),
    ("Artistic License", "Artistic"),
    ("PYTHON SOFTWARE FOUNDATION", "PSF"),
    ("Permission is hereby granted, free of charge", "MIT"),
    ("Redistribution and use in source and binary forms", "BSD"),
    ("public domain", "public domain"),
)


def num_files(root: Path) -> int:
    """How many files `debian_texts` goes through."""
    return len(_doc_files(root)) + len(_man_files(root)) + len(_info_files(root))


def debian_texts(root: Path, seen: Callable[[], None]) -> Iterator[Text]:
    """Every readable text, in a stable order.

    Args:
        root: the file system whose usr/share is read.
        seen: called once for each file.
    """
    licences = _Licences(root)
    owners = _owners(root)
    for path in _doc_files(root):
        seen()
        shown = path.relative_to(root / "usr/share/doc")
        text = _read(path)
        if text is not None and path.name.removesuffix(".gz").endswith(("html", "htm")):
            text = markup.html(text)
        if text is not None:
            package = shown.parts[0]
            yield Text(text, f"{package}: /usr/share/doc/{shown}", licences.of(package))
    for files, read in ((_man_files(root), markup.roff), (_info_files(root), markup.info)):
        for path in files:
            seen()
            text = _read(path)
            if text is None or text.startswith(".so "):
                continue
            shown = path.relative_to(root)
            package = owners.get(f"/{shown}", "")
            source = f"{package or 'unknown package'}: /{shown}"
            yield Text(read(text), source, licences.of(package))


def _doc_files(root: Path) -> list[Path]:
    folder = root / "usr/share/doc"
    return sorted(
        path
        for path in folder.rglob("*")
        if Path(path.name.removesuffix(".gz")).suffix.lower() in _SUFFIXES
        and not any(_SKIPPED.match(part) for part in path.relative_to(folder).parts[1:])
        and path.is_file()
        and not path.is_symlink()
    )


def _man_files(root: Path) -> list[Path]:
    found = (root / "usr/share/man").glob("man[1-8]/*")
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def _info_files(root: Path) -> list[Path]:
    found = (root / "usr/share/info").glob("*.info*")
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def _read(path: Path) -> str | None:
    """Its beginning as text; None when it is none."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES)
    except (OSError, EOFError, zlib.error):
        return None
    if b"\0" in data[:4096]:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start > len(data) - 4:  # cut in the middle of a character
            return data[: error.start].decode("utf-8")
        return data.decode("latin-1")


def _owners(root: Path) -> dict[str, str]:
    """Package of each installed man page and info file."""
    owners: dict[str, str] = {}
    for path in sorted((root / "var/lib/dpkg/info").glob("*.list")):
        package = path.stem.partition(":")[0]
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith(("/usr/share/man/", "/usr/share/info/")):
                owners.setdefault(line, package)
    return owners


class _Licences:
    """What the copyright file of a package says, in a few words."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, str] = {}

    def of(self, package: str) -> str:
        if package not in self._known:
            self._known[package] = self._look(package)
        return self._known[package]

    def _look(self, package: str) -> str:
        path = self._root / "usr/share/doc" / package / "copyright"
        if not package or not path.is_file():
            return "unknown"
        text = path.read_text(errors="replace")
        named = re.findall(r"^License:[ \t]*(\S[^\n]*)", text, re.MULTILINE)
        names = list(dict.fromkeys(name.strip() for name in named))
        if not names:
            names = [name for phrase, name in _LICENCES if phrase.lower() in text.lower()]
        return ", ".join(names[:4]) or f"see /usr/share/doc/{package}/copyright"
