"""A process that publishes the weights of a model folder when it is told to, as a learner does."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from spade_async.types import PolicyVersion
from spade_async.weights.store import FileWeightStore, Published


class Publisher:
    """Our end of the pipe. Versions rise by one: the store keeps the newest."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._step = 0

    def publish(self) -> tuple[PolicyVersion, Published]:
        """Publish the next version; blocks until it is announced."""
        self._step += 1
        self._pipe.send(self._step)
        location, digest, seconds = self._pipe.recv()
        return PolicyVersion(0, self._step), Published(location, digest, seconds)


@contextmanager
def publisher(model: Path, store: Path, keep: int = 3) -> Iterator[Publisher]:
    """A publisher of that model into that folder; its process is gone after the block."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    arguments = (theirs, str(model), str(store), keep)
    process = context.Process(target=_serve, args=arguments, daemon=True)
    process.start()
    # Held here as well, its end would never be seen.
    theirs.close()
    try:
        ours.recv()
        yield Publisher(ours)
        ours.send(None)
        process.join(timeout=30)
    finally:
        process.kill()
        process.join()


def _serve(pipe: Connection, model: str, folder: str, keep: int) -> None:
    import torch
    from safetensors.torch import load_file

    torch.set_num_threads(1)
    tensors = load_file(Path(model) / "model.safetensors")
    store = FileWeightStore(Path(folder), keep=keep)
    pipe.send("ready")
    while (step := pipe.recv()) is not None:
        published = store.publish(PolicyVersion(0, step), tensors)
        pipe.send((published.location, published.digest, published.seconds))
