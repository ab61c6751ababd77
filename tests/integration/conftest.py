"""Fixtures that several files share: a session-scoped one must be registered once."""

from tests.support.whole_run import finished, nano_model

__all__ = ["finished", "nano_model"]
