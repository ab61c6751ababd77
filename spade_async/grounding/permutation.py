"""A seeded permutation of range(n) that takes no memory, for any n."""

from __future__ import annotations

import hashlib

_ROUNDS = 4


class Permutation:
    """`permutation[i]` for i in range(n) gives every number of range(n) once.

    A Feistel network over the next even number of bits; what falls outside of the range walks on
    until it is inside (at most four times the range, so about two steps on average).
    """

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._half = max(1, ((size - 1).bit_length() + 1) // 2)
        self._mask = (1 << self._half) - 1
        self._keys = [
            hashlib.blake2b(f"{seed}:{i}".encode(), digest_size=8).digest() for i in range(_ROUNDS)
        ]

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> int:
        """Raises IndexError outside of range(n)."""
        if not 0 <= index < self._size:
            raise IndexError(f"{index} is not in range({self._size})")
        while True:
            index = self._walk(index)
            if index < self._size:
                return index

    def _walk(self, value: int) -> int:
        left, right = value >> self._half, value & self._mask
        for key in self._keys:
            digest = hashlib.blake2b(right.to_bytes(8, "little"), key=key, digest_size=8).digest()
            left, right = right, left ^ (int.from_bytes(digest, "little") & self._mask)
        return left << self._half | right
