"""Fixtures that several files share: a session-scoped one must be registered once."""

from tests.support.whole_run import nano_model

__all__ = ["nano_model"]
