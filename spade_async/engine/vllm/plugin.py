"""What vLLM loads into each of its processes, by the entry point `vllm.general_plugins`.

It names our way to bring weights in, ends a process of an engine of ours whose parent is gone, and
has it write down what it makes in shared memory.
Any other vLLM of the same Python only learns the name.
"""

from __future__ import annotations

import os

from spade_async.engine.vllm.left_names import note
from spade_async.engine.vllm.watchdog import OURS, watch_parent

FILE_TRANSFER = "spade_async_file"
IPC_TRANSFER = "spade_async_ipc"


def register() -> None:
    """Called by vLLM, possibly more than once in a process."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory as Factory

    for name, module, kind in (
        (FILE_TRANSFER, "file_transfer", "FileTransfer"),
        (IPC_TRANSFER, "ipc_transfer", "IpcTransfer"),
    ):
        if name not in Factory._registry:
            Factory.register_engine(name, f"spade_async.engine.vllm.{module}", kind)
    if os.environ.get(OURS):
        note()
        watch_parent()
