"""One test for both fronts of the jail: coroutines of the asyncio one run behind the scenes."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from spade_async.sandbox import Pool, SandboxPolicy, SyncPool

FRONTS = ("sync", "asyncio")


class Plain:
    """An object of the asyncio front whose coroutines are run to their end."""

    def __init__(self, inner: Any, runner: asyncio.Runner) -> None:
        self._inner, self._runner = inner, runner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        return self._call(value) if callable(value) else value

    def _call(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            async def run() -> Any:
                result = function(*(bare(arg) for arg in args), **named)
                return await result if inspect.isawaitable(result) else result

            return self._wrap(self._runner.run(run()))

        return call

    def _wrap(self, value: Any) -> Any:
        if type(value).__module__.startswith("spade_async.sandbox") and hasattr(value, "close"):
            return Plain(value, self._runner)
        return value

    def __enter__(self) -> Any:
        if hasattr(self._inner, "__aenter__"):
            self._call(self._inner.__aenter__)()
        return self

    def __exit__(self, *error: object) -> None:
        self._call(self._inner.__aexit__)(*error)


def bare(value: Any) -> Any:
    """What a wrapper holds, in lists and tuples too."""
    if isinstance(value, Plain):
        return value._inner
    if isinstance(value, (list, tuple)):
        return type(value)(bare(one) for one in value)
    return value


class Front:
    """A pool of one of the two fronts, used as the synchronous one is."""

    def __init__(self, front: str, policy: SandboxPolicy) -> None:
        self._front, self._policy = front, policy

    def __enter__(self) -> Any:
        if self._front == "sync":
            self._pool: Any = SyncPool(self._policy)
        else:
            self._runner = asyncio.Runner()
            self._pool = Plain(Pool(self._policy), self._runner)
        return self._pool.__enter__()

    def __exit__(self, *error: object) -> None:
        self._pool.__exit__(*error)
        if self._front == "asyncio":
            self._runner.close()
