"""A game small enough to solve: the theory of SPADE, executable (docs/nash.md)."""
