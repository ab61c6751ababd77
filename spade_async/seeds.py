"""All randomness derives from the run seed and names, so that a run can be replayed."""

from __future__ import annotations

import hashlib


def derive(seed: int, *names: str | int) -> int:
    """A 63-bit seed from a root seed and a path of names.

    Example: ``derive(17, "episode", environment_id, 3)`` is the same on every machine.
    """
    digest = hashlib.blake2b(repr((seed, *names)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
