"""`manifest.json` of a folder: size and digest of each file, so that damage is seen before use."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

MANIFEST = "manifest.json"
SCHEMA = 1


def write_manifest(folder: Path) -> None:
    """Note what is in a folder now. Reads every file: about 1 s per GB."""
    files = {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "blake2b": _digest(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }
    text = json.dumps({"schema": SCHEMA, "files": files}, indent=2) + "\n"
    (folder / MANIFEST).write_text(text)


def damage(folder: Path) -> str | None:
    """What is wrong with a folder, in a few words; None when it is whole.

    A folder without a manifest (of an earlier version) is judged by the lengths that its
    safetensors files state.
    """
    try:
        if not (folder / MANIFEST).exists():
            return _wrong_length(folder)
        stored = json.loads((folder / MANIFEST).read_text())
        files = {
            str(name): (int(f["bytes"]), str(f["blake2b"])) for name, f in stored["files"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as cause:
        return f"{MANIFEST} cannot be read ({type(cause).__name__}: {cause})"
    # All lengths before any digest: a truncated file is found at once.
    for name, (size, _) in files.items():
        path = folder / name
        found = path.stat().st_size if path.is_file() else None
        if found is None:
            return f"{name} is missing"
        if found != size:
            return f"{name} has {found} bytes, {size} were written"
    for name, (_, digest) in files.items():
        try:
            if _digest(folder / name) != digest:
                return f"{name} has other bytes than were written"
        except OSError as cause:
            return f"{name} cannot be read ({cause.strerror})"
    return None


def _wrong_length(folder: Path) -> str | None:
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            head = file.read(8)
            header = int.from_bytes(head, "little")
            if len(head) < 8 or header > path.stat().st_size - 8:
                return f"{path.name} is truncated"
            entries = json.loads(file.read(header))
        ends = [e["data_offsets"][1] for name, e in entries.items() if name != "__metadata__"]
        if path.stat().st_size != 8 + header + max(ends, default=0):
            return f"{path.name} has {path.stat().st_size} bytes, which is not what it states"
    return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
