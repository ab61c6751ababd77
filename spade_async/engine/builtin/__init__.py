"""The built-in engine: torch on a CPU, continuous batching, weights swapped in flight."""

from spade_async.engine.builtin.engine import BuiltinEngine

__all__ = ["BuiltinEngine"]
