"""The coordinator as a process: its hub, its signals, what the supervisor tells it, its end."""

from __future__ import annotations

import asyncio
import logging
import signal

from spade_async.config.link_address import IPC
from spade_async.config.load import load_resolved
from spade_async.config.run_folder import RunFolder
from spade_async.coordinator.news import listen
from spade_async.coordinator.process import Coordinator
from spade_async.errors import TransportError, exit_status
from spade_async.telemetry import stacks
from spade_async.transport.hub import Hub
from spade_async.transport.part import Part

log = logging.getLogger(__name__)


async def _serve(part: Part) -> None:
    stacks.answer_tasks(part.stacks)
    config = load_resolved(part.run_dir)
    # Where the parts connect may be one of many addresses that the coordinator listens on.
    endpoint = part.endpoint if config.link.endpoint == IPC else config.link.endpoint
    hub = Hub(endpoint, config.link)
    await hub.start()
    coordinator = Coordinator(config, RunFolder(part.run_dir), hub)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, coordinator.request_stop)
    listen(coordinator.lives.news.append)
    await coordinator.run()


def run(part: Part) -> int:
    """Run the coordinator of one run folder to its end; 0 when it ended as it should."""
    try:
        asyncio.run(_serve(part))
    except TransportError as fault:
        log.error("%s", fault)
        return 1
    except Exception as fault:
        log.exception("the coordinator failed")
        return exit_status(fault)
    return 0
