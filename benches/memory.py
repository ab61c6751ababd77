"""The environment memory at size: remembering one environment, drawing exemplars, drawing a replay.

Everything goes through the ledger as in a run: each environment is remembered in a transaction of
its own, with the search for near copies and the eviction of the oldest; exemplars come with their
sources. Signatures are made up: 200 families whose members are about half alike, and one insert in
ten is a near copy (0.95) of an entry. Meaning of every figure: docs/grounding.md.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from spade_async.grounding.memory import Memory
from spade_async.grounding.signature import BANDS, SLOTS, Signature, band_keys
from spade_async.ledger import Ledger
from spade_async.types import Environment, RegretClass, RegretEstimate

AT_TOP = True
SIZES = (10_000, 100_000, 1_000_000)
QUICK = (2_000,)
REPEATS, OPERATIONS = 5, 200
"""Blocks of single operations that are timed; the figures are over the blocks' medians."""
GOAL_MS = 5.0
"""Remembering one and drawing exemplars, together."""
_FAMILIES, _KEPT = 200, 0.7
"""Slots of a family's base that a member keeps; two members share about half of their slots."""
_COPY_KEEPS = 0.975
_SKILLS = tuple(f"skill {i}" for i in range(9))
_PER_TRANSACTION = 5_000
_SOURCE = "x" * 700
_Times = dict[str, list[list[tuple[float, float]]]]
"""By operation: blocks of (wall, CPU) milliseconds."""


def run(quick: bool) -> dict[str, Any]:
    """All sizes; `quick` takes a small one."""
    repeats = 2 if quick else REPEATS
    return {
        "goal_ms": GOAL_MS,
        "repeats": repeats,
        "operations_per_repeat": OPERATIONS,
        "sizes": [_size(size, repeats) for size in (QUICK if quick else SIZES)],
    }


def table(result: dict[str, Any]) -> str:
    """One line per size and operation: milliseconds on the wall, and of CPU."""
    head = (
        f"{'entries':>9} {'what':>20} {'median':>8} {'from':>8} {'to':>8} {'p99':>8} {'max':>8} "
        f"{'CPU':>8}"
    )
    lines = [head]
    for row in result["sizes"]:
        for what, found in row["ms"].items():
            numbers = " ".join(
                f"{found[key]:>8.3f}" for key in ("median", "low", "high", "p99", "max", "cpu")
            )
            lines.append(f"{row['entries']:>9} {what:>20} {numbers}")
        lines.append(
            f"{row['entries']:>9} {'filled in':>20} {row['fill_s']:>8.1f} s, "
            f"{row['file_bytes'] / 1e6:.0f} MB, near copies found "
            f"{row['copies_found']} of {row['copies_made']}"
        )
    lines.append(f"goal: remember + exemplars under {result['goal_ms']} ms")
    return "\n".join(lines)


def _size(size: int, repeats: int) -> dict[str, Any]:
    rng = np.random.default_rng(size)
    with tempfile.TemporaryDirectory(prefix="spade-memory-") as folder:
        path = Path(folder) / "ledger.sqlite"
        with Ledger.open(path, create=True, config_digest="bench") as ledger:
            begin = time.perf_counter()
            _fill(ledger, rng, size)
            fill_s = time.perf_counter() - begin
            memory = Memory(ledger, size, near_duplicate=0.9)
            before = memory.num_alike
            times, num_made = _timed(ledger, memory, rng, size, repeats)
            row = {
                "entries": len(memory),
                "fill_s": fill_s,
                "copies_made": num_made,
                "copies_found": memory.num_alike - before,
                "ms": {what: _summary(blocks) for what, blocks in times.items()},
            }
        row["file_bytes"] = sum(part.stat().st_size for part in Path(folder).iterdir())
    return row


def _fill(ledger: Ledger, rng: np.random.Generator, size: int) -> None:
    """The rows that remembering one by one would leave, in bulk: that would take an hour."""
    raw = ledger._db.raw
    fresh, keys = _signatures(rng, size), np.empty((size, BANDS), np.int64)
    for start in range(0, size, _PER_TRANSACTION):
        environments, entries = [], []
        for i in range(start, min(start + _PER_TRANSACTION, size)):
            signature = next(fresh)
            keys[i] = band_keys(signature)
            environment, found, skill = _measured(i)
            kind = found.regret_class.value
            environments.append((environment.environment_id, environment.source, i))
            entries.append((
                i + 1, environment.environment_id, environment.skeleton, skill, kind,
                found.paid_regret if kind == "frontier" else float(i), i, found.regret,
                found.mean_no_hint, found.mean_with_hint, 0.3, 0, signature.tobytes(),
            ))  # fmt: skip
        with ledger.transaction():
            raw.executemany(
                "INSERT INTO environments VALUES (?, ?, 'environment', NULL, 0.0, '[]', '',"
                " 'designer', ?, 0.0, NULL, NULL)",
                environments,
            )
            raw.executemany(f"INSERT INTO memory VALUES ({', '.join('?' * 13)})", entries)
    # In the order of the index: at random places it would be many times as slow.
    flat, numbers = keys.reshape(-1), np.repeat(np.arange(1, size + 1), BANDS)
    order = np.argsort(flat, kind="stable")
    for start in range(0, len(order), 10 * _PER_TRANSACTION):
        some = order[start : start + 10 * _PER_TRANSACTION]
        with ledger.transaction():
            raw.executemany(
                "INSERT OR IGNORE INTO memory_bands VALUES (?, ?)",
                zip(flat[some].tolist(), numbers[some].tolist(), strict=True),
            )


def _timed(
    ledger: Ledger, memory: Memory, rng: np.random.Generator, size: int, repeats: int
) -> tuple[_Times, int]:
    """Milliseconds by operation, in blocks; and how many near copies were among the inserts."""
    whats = ("remember", "exemplars", "both", "replay")
    times: _Times = {what: [[] for _ in range(repeats)] for what in whats}
    fresh, num_made = _signatures(rng, repeats * OPERATIONS), 0
    for i in range(repeats * OPERATIONS):
        signature = next(fresh)
        if i % 10 == 0:
            bounds = ledger.entry_bounds()
            assert bounds is not None
            other = ledger.entry(int(rng.integers(*bounds, endpoint=True)))
            if other is not None and other.signature is not None:
                keep = rng.random(SLOTS) < _COPY_KEEPS
                signature = np.where(keep, other.signature, signature).astype(np.int32)
                num_made += 1
        block = i // OPERATIONS

        def remember(number: int = size + i, signature: Signature = signature) -> None:
            with ledger.transaction():
                _add(ledger, memory, number, signature)

        def draw(seed: int = i) -> None:
            memory.exemplars(2, seed, _SKILLS[seed % 9])

        one, two = _ms(remember), _ms(draw)
        times["remember"][block].append(one)
        times["exemplars"][block].append(two)
        times["both"][block].append((one[0] + two[0], one[1] + two[1]))
        times["replay"][block].append(_ms(lambda seed=i: memory.replay(seed)))
    return times, num_made


def _signatures(rng: np.random.Generator, num: int) -> Iterator[Signature]:
    bases = rng.integers(-(2**31), 2**31, (_FAMILIES, SLOTS), dtype=np.int64)
    for start in range(0, num, 10_000):
        some = min(10_000, num - start)
        own = rng.integers(-(2**31), 2**31, (some, SLOTS), dtype=np.int64)
        kept = rng.random((some, SLOTS)) < _KEPT
        mixed = np.where(kept, bases[rng.integers(0, _FAMILIES, some)], own)
        yield from mixed.astype(np.int32)


def _measured(number: int) -> tuple[Environment, RegretEstimate, str]:
    """An environment, its estimate and its skill."""
    environment = Environment(
        environment_id=f"{number:016x}", source=_SOURCE + str(number), skeleton=f"{number:x}"
    )
    kinds = (RegretClass.FRONTIER, RegretClass.MASTERED, RegretClass.OUT_OF_REACH)
    paid = (number * 2654435761 % 2**32) / 2**32
    estimate = RegretEstimate(
        regret=paid,
        standard_error=0.1,
        paid_regret=paid,
        mean_with_hint=paid,
        mean_no_hint=0.3,
        num_pairs=8,
        regret_class=kinds[number % 3],
    )
    return environment, estimate, _SKILLS[number % 9]


def _add(ledger: Ledger, memory: Memory, number: int, signature: Signature) -> None:
    environment, estimate, skill = _measured(number)
    ledger.add_environment(environment, None, None, number)
    memory.add(environment, estimate, number, skill=skill, win_rate=0.3, signature=signature)


def _ms(operation: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds on the wall, and of CPU, which a loaded machine does not change."""
    begin, cpu = time.perf_counter(), time.thread_time()
    operation()
    return (time.perf_counter() - begin) * 1e3, (time.thread_time() - cpu) * 1e3


def _summary(blocks: list[list[tuple[float, float]]]) -> dict[str, float]:
    medians = [statistics.median(wall for wall, _ in block) for block in blocks]
    everything = sorted(wall for block in blocks for wall, _ in block)
    return {
        "median": statistics.median(medians),
        "low": min(medians),
        "high": max(medians),
        "p99": everything[int(0.99 * len(everything))],
        "max": everything[-1],
        "cpu": statistics.median(cpu for block in blocks for _, cpu in block),
    }
