"""`run.*`: identity and folders."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from spade_async.config.section import Section
from spade_async.config.size import Size


class RunConfig(Section):
    """Identity and folders."""

    name: str = Field("run", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    """Name of the run; default run folder is runs/NAME-TIMESTAMP."""
    seed: int = Field(17, ge=0, lt=2**63)
    """Everything random is derived from this and from names."""
    compat: Literal["off", "reference"] = "off"
    """"reference" reproduces the formulas and rules of the reference implementation, its known
    mistakes included, where ours differ; see docs/compat.md."""
    fake_weights: bool = False
    """A dry run: `train --fake-weights` sets it. Shown wherever figures of the run are."""
    alert_command: str | tuple[str, ...] = ""
    """Run for every alert with its JSON on stdin: a shell string or an argument list. At most 10 s,
    one at a time; see docs/guard.md."""
    disk_budget: Size | None = Field(None, ge=1_000_000)
    """Most bytes of the run folder, or a size such as "2GB"; what goes first is in docs/guard.md.
    Not set: no limit."""
