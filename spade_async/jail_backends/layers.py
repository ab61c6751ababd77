"""Layers of a jail: what was tried at the start, what came of it, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from spade_async.errors import SandboxError


@dataclass
class Layers:
    """Layers in the order in which they were found out."""

    level: str
    """Name of the level when every layer holds."""
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)

    def note(self, name: str, is_held: bool, detail: str, remedy: str) -> None:
        """Record one layer; the remedy is shown only where it does not hold."""
        self.entries[name] = {"ok": is_held, "detail": detail, "remedy": "" if is_held else remedy}

    @property
    def missing(self) -> list[str]:
        """Names of the layers that do not hold."""
        return [name for name, entry in self.entries.items() if not entry["ok"]]

    def report(self) -> dict[str, Any]:
        """The dictionary of `Pool.capabilities`."""
        level = self.level
        if self.missing and self.level != "none":
            level += f" (reduced: no {', '.join(self.missing)})"
        return {"level": level, "layers": self.entries}

    def demand(self, names: list[str]) -> None:
        """Refuse to go on without these layers.

        Raises:
            SandboxError: one of them does not hold.
        """
        for name in names:
            entry = self.entries.get(name)
            if entry is None or not entry["ok"]:
                detail, remedy = (entry["detail"], entry["remedy"]) if entry else ("not tried", "")
                raise SandboxError(f"sandbox layer {name} is missing: {detail}; {remedy}")
