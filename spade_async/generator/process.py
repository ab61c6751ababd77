"""The generator process: starts jail, engine and link from the configuration, then serves."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import uuid
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from spade_async.agent.episode import Player
from spade_async.config.load import load_resolved
from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.designer.compat import with_compat
from spade_async.domain import load_domain
from spade_async.engine.scripted_jail import ScriptedJail
from spade_async.errors import ConfigError, SpadeError, exit_status
from spade_async.generator.blacklist import Blacklist
from spade_async.generator.context import GeneratorContext
from spade_async.generator.engines import make_engine, make_jail, make_tokens
from spade_async.generator.jail_figures import level_text, write_record
from spade_async.generator.lossy_peer import LossyPeer
from spade_async.generator.serve import Generator
from spade_async.generator.turns import Turns
from spade_async.sandbox import Pool
from spade_async.telemetry import stacks
from spade_async.transport.link import Peer
from spade_async.transport.messages import Hello
from spade_async.transport.part import Part

log = logging.getLogger(__name__)

_WELCOME_S = 600.0
"""The coordinator welcomes generators once the learner has published its first weights."""


def run(part: Part) -> int:
    """Run one generator until it is told to stop.

    Returns the exit status: 0 stopped, 78 refused, 1 failed.
    """
    try:
        return asyncio.run(_main(part.run_dir, part.name, part.endpoint, part.stacks))
    except SpadeError as fault:
        log.error("%s", fault)
        return exit_status(fault)
    except Exception:
        log.exception("the generator failed")
    return 1


async def _main(run_dir: Path, name: str, endpoint: str, stacks_file: Path) -> int:
    stacks.answer_tasks(stacks_file)
    leave = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, leave.set)
    config = load_resolved(run_dir)
    folder = model_folder(config, RunFolder(run_dir))
    hello = Hello(name=name, incarnation=uuid.uuid4().hex, pid=os.getpid())
    async with AsyncExitStack() as stack:
        starting = asyncio.gather(
            Peer.connect(endpoint, hello, config.link, timeout_s=_WELCOME_S),
            _context(config, folder, run_dir, name, stack),
        )
        stopped = asyncio.create_task(leave.wait())
        either: list[asyncio.Future[Any]] = [starting, stopped]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await stack.aclose()
            # A thread may still import torch or read the model; nobody needs what it makes.
            os._exit(0)
        peer, (context, pool, turns) = starting.result()
        stack.push_async_callback(peer.close)
        link: Any = peer
        if config.scripted.swallow_share > 0:
            link = LossyPeer(peer, config.scripted.swallow_share, config.run.seed)
        generator = Generator(name, context, pool, link, leave, turns)
        return await generator.serve()


async def _context(
    config: Config, folder: Path, run_dir: Path, name: str, stack: AsyncExitStack
) -> tuple[GeneratorContext, Pool | ScriptedJail, Turns | None]:
    """Start jail, codec and engine; the stack closes them. What confines is noted in the folder."""
    pool = make_jail(config)
    await stack.enter_async_context(pool)
    log.info("jail: %s", level_text(pool.capabilities))
    write_record(RunFolder(run_dir).jail(name), pool.policy, pool.capabilities)
    domain = with_compat(load_domain(config.domain.hook), config.run.compat)
    codecs = await asyncio.to_thread(make_tokens, config, folder)
    turns = None
    if config.cluster.takes_turns:
        turns = await Turns.begin(run_dir)
        stack.push_async_callback(turns.end)
    engine = await make_engine(config, folder)
    stack.push_async_callback(engine.close)
    if turns is not None:
        turns.watch(engine)
    is_reference = config.run.compat == "reference"
    player = Player(engine, codecs.agent, pool, domain, is_reference=is_reference)
    blacklist = Blacklist() if is_reference else None
    context = GeneratorContext(config, player, codecs.designer, codecs.brief, blacklist=blacklist)
    return context, pool, turns


def model_folder(config: Config, folder: RunFolder) -> Path:
    """Folder of the model of this run: as the supervisor noted it, else `model.path` itself.

    Raises:
        ConfigError: there is no such folder.
    """
    try:
        noted = json.loads(folder.info.read_text()).get("model_folder")
    except FileNotFoundError:
        noted = None
    except ValueError as cause:
        raise ConfigError(f"{folder.info} is damaged ({cause}): start the run again") from cause
    path = Path(noted or config.model.path)
    if not path.is_dir():
        raise ConfigError(f"the model folder {path} does not exist: start the run again")
    return path
