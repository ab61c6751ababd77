"""The jail of another checkout and of this one, rung by rung in one interleaved run.

`python -m benches.ladder.pair FOLDER --json FILE`: FOLDER is a checkout with its extension built.
Both start their pools; each round takes every rung of both once, in another order each time. What
the rungs are: `docs/bench_sandbox.md`. On a loaded machine only the short rungs mean anything.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from benches.__main__ import machine
from benches.ladder.row import figure

ARM = Path(__file__).parent / "arm.py"
HERE = Path(__file__).resolve().parents[2]
SLOW = ("numpy", "source", "F_numpy", "teardown")
"""Parts of the keys that are left out: what they add is in the ladder itself."""


class Arm:
    """The rungs of one checkout, in a process of their own."""

    def __init__(self, tree: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(ARM)], cwd=tree, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._ask: IO[str] = self._process.stdin
        self._answer: IO[str] = self._process.stdout
        self.keys: list[str] = self._read()

    def take(self, key: str) -> list[float]:
        """Samples of one turn of a rung."""
        self._ask.write(key + "\n")
        self._ask.flush()
        samples: list[float] = self._read()
        return samples

    def _read(self) -> Any:
        line = self._answer.readline()
        if not line:
            raise RuntimeError(f"the rungs ended with code {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        """End it."""
        self._ask.close()
        self._process.wait()


def run(against: Path, rounds: int) -> dict[str, Any]:
    """Measure; this checkout against itself shows the noise."""
    arms = [Arm(against.resolve()), Arm(HERE)]
    known = set(arms[1].keys)
    keys = sorted(
        key for key in known if "per_source" in key or not any(part in key for part in SLOW)
    )
    samples: dict[tuple[int, str], list[float]] = {}
    load_before, chance = os.getloadavg()[0], random.Random(0)
    try:
        for number in range(rounds + 1):  # the first warms up
            order = [(at, key) for at in (0, 1) for key in keys if key in arms[at].keys]
            chance.shuffle(order)
            for at, key in order:
                taken = arms[at].take(key)
                if number:
                    samples.setdefault((at, key), []).extend(taken)
    finally:
        for arm in arms:
            arm.close()
    rows = [
        {"key": key, "before": figure(samples.get((0, key), ())), "after": figure(samples[1, key])}
        for key in keys
    ]
    loads = {"load_before": load_before, "load_after": os.getloadavg()[0]}
    return {"rows": rows, "run": {"rounds": rounds, **loads}}


def table(result: dict[str, Any]) -> str:
    """Medians and tenths of both, and the ratio of each."""
    head = ("", "before", "p10", "after", "p10", "ratio", "of p10", "n")
    lines = ["{:<32}{:>10}{:>9}{:>10}{:>9}{:>8}{:>8}{:>7}".format(*head)]
    for row in result["rows"]:
        old, new = row["before"], row["after"]
        if old is None:
            lines.append(
                f"{row['key']:<51}{new['median']:>10,.1f}{new['p10']:>9,.1f}{new['n']:>23}"
            )
            continue
        lines.append(
            f"{row['key']:<32}{old['median']:>10,.1f}{old['p10']:>9,.1f}{new['median']:>10,.1f}"
            f"{new['p10']:>9,.1f}{new['median'] / old['median']:>8.3f}"
            f"{new['p10'] / old['p10']:>8.3f}{new['n']:>7}"
        )
    where = result["run"]
    lines.append(
        f"load {where['load_before']:.1f} before and {where['load_after']:.1f} after, "
        f"{where['rounds']} rounds; microseconds, episodes in CPU milliseconds"
    )
    return "\n".join(lines)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benches.ladder.pair", description=__doc__)
    parser.add_argument("against", type=Path, metavar="FOLDER", help="the other checkout")
    parser.add_argument("--rounds", type=int, default=40, metavar="N", help="turns of each rung")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    result = run(options.against, options.rounds)
    print(table(result))
    if options.json is not None:
        facts = {"bench": "sandbox_pair", "machine": machine(), **result}
        options.json.write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
