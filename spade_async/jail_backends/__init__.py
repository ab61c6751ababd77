"""Ways to run untrusted code behind one protocol: the native jail, nsjail, and none at all."""

from spade_async.jail_backends.choice import BACKENDS, check_backend
from spade_async.jail_backends.factory import make_core
from spade_async.jail_backends.protocol import Core

__all__ = ["BACKENDS", "Core", "check_backend", "make_core"]
