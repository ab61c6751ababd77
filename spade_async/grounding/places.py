"""What lies at a path: which files, in which format, as blocks of rows.

Knows the layouts of a Hugging Face dataset: a folder that `save_to_disk` wrote (Arrow files, or one
folder a split) and a folder of shards as hubs lay them out (parquet or JSON lines, `train-*`).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from spade_async.errors import ConfigError
from spade_async.grounding.arrow_blocks import ArrowFile, ParquetFile
from spade_async.grounding.blocks import Blocks, LineFile, Shards, TextFile
from spade_async.grounding.document import BadRow
from spade_async.grounding.spool import packing, unpacked

SUFFIXES = {
    "arrow": (".arrow",),
    "parquet": (".parquet",),
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "text": (".txt", ".text", ".md", ".rst"),
}
"""Names by format, the better ones first: of a mixed folder the first format found is read."""
_PACKED = (".gz", ".zst", ".zstd")
_NOT_DATA = {"dataset_info.json", "state.json", "dataset_dict.json", "dataset_infos.json"}
_TRAIN = "train"
_SNIFFED_BYTES = 64 << 10
MAX_FILES = 1_000_000


def open_place(path: Path, form: str, *, passage_words: int) -> Blocks:
    """The files at a path, opened.

    Args:
        path: a file or a folder.
        form: as `CorpusSource.format`.
        passage_words: length of the documents that a plain text is cut into.

    Raises:
        ConfigError: one line: missing, unreadable, empty, binary, damaged, no file of a known kind.
    """
    try:
        if path.is_dir():
            return _open_folder(path, form, passage_words)
        if not path.is_file():
            what = "is no file or folder" if path.exists() else "does not exist"
            raise ConfigError(
                f"grounding.corpus={str(path)!r} {what}: give a file, a folder or "
                '"stdlib-docstrings"; a relative path begins where the command runs'
            )
        return _open_file(path, form, path.name, passage_words)
    except OSError as cause:
        raise ConfigError(f"grounding.corpus={str(path)!r} cannot be read: {cause}") from cause


def _open_folder(folder: Path, form: str, passage_words: int) -> Blocks:
    folder = _split(folder)
    files = _files(folder)
    formats = [form] if form != "auto" else list(SUFFIXES)
    for name in formats:
        found = [path for path in files if _bare(path).suffix in SUFFIXES[name]]
        if found:
            chosen = _train_only(folder, found) if name != "text" else found
            names = [path.relative_to(folder).as_posix() for path in chosen]
            return _shards(dict(zip(names, chosen, strict=True)), name, passage_words)
    kinds = ", ".join(suffix for name in formats for suffix in SUFFIXES[name])
    raise ConfigError(
        f"grounding.corpus={str(folder)!r} has no readable file: none of its {len(files)} has a "
        f"name in {kinds} (or packed as {', '.join(_PACKED)}): name the folder of the data"
    )


def _shards(files: dict[str, Path], form: str, passage_words: int) -> Shards:
    """Those that can be opened; the others are named. ConfigError when none can."""
    opened: dict[str, Blocks] = {}
    skipped: list[BadRow] = []
    for name, path in files.items():
        try:
            opened[name] = _open_file(path, form, name, passage_words)
        except (ConfigError, OSError) as fault:
            if not opened and len(skipped) == len(files) - 1:
                raise
            skipped.append(BadRow(name, str(fault)))
    return Shards(opened, skipped)


def _split(folder: Path) -> Path:
    """The split of a saved DatasetDict that is read: train, else its first."""
    try:
        splits = json.loads((folder / "dataset_dict.json").read_text())["splits"]
        return folder / (_TRAIN if _TRAIN in splits else splits[0])
    except FileNotFoundError:
        return folder
    except (ValueError, KeyError, IndexError, TypeError) as cause:
        raise ConfigError(
            f"grounding.corpus: {folder / 'dataset_dict.json'} is damaged ({cause!r}): name the "
            "folder of one split"
        ) from cause


def _files(folder: Path) -> list[Path]:
    found: list[Path] = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [
            Path(root, name) for name in names if name not in _NOT_DATA and name[0] not in "._"
        ]
        if len(found) > MAX_FILES:
            raise ConfigError(
                f"grounding.corpus={str(folder)!r} has more than {MAX_FILES} files: name the "
                "folder of the data, or join them into JSON lines"
            )
    return sorted(path for path in found if path.is_file())


def _train_only(folder: Path, files: list[Path]) -> list[Path]:
    """Shards of the training split when they say so, in their name or their folder's."""
    train = [
        path
        for path in files
        if any(part.startswith(_TRAIN) for part in path.relative_to(folder).parts)
    ]
    return train or files


def _bare(path: Path) -> Path:
    return path.with_suffix("") if path.suffix in _PACKED else path


def _open_file(path: Path, form: str, name: str, passage_words: int) -> Blocks:
    if path.stat().st_size == 0:
        raise ConfigError(f"grounding.corpus={str(path)!r} is empty: give a file with documents")
    kind = packing(path)
    plain = path if kind is None else unpacked(path, kind)
    with plain.open("rb") as file:
        head = file.read(_SNIFFED_BYTES)
    if form == "auto":
        form = _format_of(_bare(path), head)
    if form == "parquet":
        return ParquetFile(plain, name)
    if form == "arrow":
        return ArrowFile(plain, name)
    if b"\0" in head:
        raise ConfigError(
            f"grounding.corpus={str(path)!r} is binary (a zero byte at byte {head.index(0)}), not "
            f"{form}: give text in UTF-8, or say its format"
        )
    return LineFile(plain, name) if form == "jsonl" else TextFile(plain, name, passage_words)


def _format_of(path: Path, head: bytes) -> str:
    """By name; by its first bytes when the name says nothing. JSON lines when nothing does."""
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"ARROW1"):
        return "arrow"
    return next((name for name, ends in SUFFIXES.items() if path.suffix in ends), "jsonl")
