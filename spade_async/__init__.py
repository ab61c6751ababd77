"""spade-async: asynchronous self-play in model-written executable environments."""

__version__ = "0.1.0"
