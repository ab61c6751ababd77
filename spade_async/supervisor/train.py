"""`spade-async train`: everything around the loop, from the run folder to the last sweep.

Order: configuration, all that can be refused (`check_start.py`), run folder (lock), model, link
endpoint, parts; then watching; then, whatever happened, nothing is left behind. A start that is
refused before it has a part leaves no folder. What happens inside the loop is the coordinator's.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spade_async.cluster.placement import place
from spade_async.config.link_address import IPC
from spade_async.config.load import resolve
from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.disk.room import is_full
from spade_async.engine.scripted_weights import write_model_folder
from spade_async.engine.vllm import left_names
from spade_async.errors import ProcessFailure, RunFolderError, SpadeError
from spade_async.ledger.connection import network_type
from spade_async.simulate.startup import bound_lines
from spade_async.supervisor import folder as run_folders
from spade_async.supervisor.check_start import check_model, check_start
from spade_async.supervisor.display import Display
from spade_async.supervisor.finished import is_finished
from spade_async.supervisor.hub import with_local_model
from spade_async.supervisor.info import identity, new_info, wait_for_old_parts
from spade_async.supervisor.model import ModelProgress, is_folder, make_model
from spade_async.supervisor.parts import Lifeline, Part, PartCommand, kill_all, run_commands, spawn
from spade_async.supervisor.processes import become_subreaper, sweep
from spade_async.supervisor.resources import ResourceMeter
from spade_async.supervisor.room import check_disk_room
from spade_async.supervisor.signals import Interrupts
from spade_async.supervisor.watch import RunEnd, Watcher
from spade_async.telemetry.silence import with_silence
from spade_async.telemetry.status import (
    ENDED_STATES,
    FAKE_NOTE,
    SCRIPTED_NOTE,
    ProcessStatus,
    RunStatus,
    read_status,
    write_status,
)
from spade_async.transport.endpoint import (
    address_to_connect,
    check_free,
    make_endpoint,
    remove_endpoint,
)
from spade_async.weights.folder import (
    make_weights_folder,
    remove_weights_folder,
    weights_folder,
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended and where it is."""

    end: RunEnd
    run_dir: Path


CommandsFor = Callable[[Path, str, int], Sequence[PartCommand]]


def train(
    config_path: Path,
    sets: Sequence[str],
    run_dir: Path | None,
    *,
    resume: bool,
    display: Display,
    commands_for: CommandsFor = run_commands,
) -> Outcome:
    """Run one training run to its end.

    Args:
        config_path: TOML file.
        sets: dotted overrides.
        run_dir: run folder; None makes runs/NAME-TIMESTAMP.
        resume: go on with what is in `run_dir`.
        display: shows the run.
        commands_for: command lines of the parts from run folder, endpoint and number of generators;
            another one in tests.

    Raises:
        SpadeError: the run could not start; nothing is lost, one line says what to do.
    """
    config = with_local_model(resolve(config_path, sets))
    if resume and run_dir is None and config_path.is_dir():
        run_dir = config_path
    if resume and run_dir is None:
        raise RunFolderError(
            "--resume needs a run: spade-async train RUN --resume, or name it by --run-dir"
        )
    root = (run_dir or _default_folder(config)).absolute()
    check_start(config)
    locked = run_folders.take(root, config, resume=resume)
    try:
        if resume and is_finished(locked.folder, config):
            return Outcome(RunEnd("finished", f"finished already; everything is in {root}"), root)
        with Interrupts() as interrupts:
            become_subreaper()
            end = _locked_run(config, locked, interrupts, display, commands_for)
        return Outcome(end, root)
    except ProcessFailure:
        raise  # its log lies in the folder
    except SpadeError:
        locked.forget()
        raise
    except OSError as cause:
        locked.forget()
        raise run_folders.unusable(root, cause) from cause
    finally:
        sweep(os.getpid())
        left_names.sweep()
        locked.close()


def _default_folder(config: Config) -> Path:
    return Path("runs") / f"{config.run.name}-{time.strftime('%Y%m%d-%H%M%S')}"


def _locked_run(
    config: Config,
    locked: run_folders.LockedFolder,
    interrupts: Interrupts,
    display: Display,
    commands_for: CommandsFor,
) -> RunEnd:
    folder = locked.folder
    wait_for_old_parts(folder)
    info = new_info(config, folder)
    run_folders.write_info(folder, info)
    meter = ResourceMeter(folder, is_resumed=locked.is_resumed)
    lifeline = Lifeline()
    display.start()
    try:
        display.say(f"run folder {folder.root}")
        if config.is_scripted:
            display.say(SCRIPTED_NOTE)
        if config.run.fake_weights:
            display.say(FAKE_NOTE)
        network = network_type(folder.root)
        if network is not None:
            display.say(
                f"{folder.root} is on a network file system ({network}), where a crash may lose "
                "what was committed: put the run folder on a local disk"
            )
        display.say(f"curves: tensorboard --logdir {folder.tensorboard}")
        for line in bound_lines(config):
            display.say(line)
        end = _run(config, folder, info, interrupts, display, meter, lifeline, commands_for)
    except (SpadeError, OSError) as error:
        _write_last_status(folder, "failed", str(error))
        raise
    finally:
        display.stop()
        lifeline.close()
        meter.tick(force=True)
        _clean_up(config, folder, info)
    _write_last_status(folder, end.state, end.line if end.state == "failed" else None)
    return end


def _run(
    config: Config,
    folder: RunFolder,
    info: dict[str, Any],
    interrupts: Interrupts,
    display: Display,
    meter: ResourceMeter,
    lifeline: Lifeline,
    commands_for: CommandsFor,
) -> RunEnd:
    _show(folder, display, RunStatus(state="starting", steps=config.train.steps))
    model_folder = _ready_model(config, folder, interrupts, display, meter, lifeline)
    if model_folder is None:
        return RunEnd("interrupted", "stopped before the first step; nothing to save")
    check_disk_room(config, folder.root, model_folder)
    make_weights_folder(config, folder.root)
    info["model_folder"] = str(model_folder)
    if config.link.endpoint == IPC:
        socket_folder, endpoint = make_endpoint()
        info["socket_folder"] = str(socket_folder)
    else:
        check_free(config.link)
        endpoint = address_to_connect(config.link)
    run_folders.write_info(folder, info)

    commands = {c.name: c for c in commands_for(folder.root, endpoint, config.generator.count)}
    placement = place(config)
    for name, command in commands.items():
        commands[name] = replace(command, environment=placement.environment(name))
    parts: dict[str, Part] = {}

    def start(name: str) -> Part:
        part = parts[name] = spawn(
            commands[name],
            log=folder.logs / f"{name}.log",
            lifeline=lifeline,
            listens=name == "coordinator",
        )
        info["processes"][name] = identity(part.pid)
        try:
            run_folders.write_info(folder, info)
        except OSError as cause:
            # A restart while the disk is full: who runs matters to a later resume alone.
            if not is_full(cause):
                raise
        return part

    def tick() -> None:
        meter.tick()
        status = read_status(folder.status)
        if status is not None:
            display.show(with_silence(status))

    try:
        for name in commands:
            start(name)
        return Watcher(
            list(parts.values()),
            folder,
            interrupts,
            config.supervisor,
            start,
            on_tick=tick,
            say=display.say,
        ).run()
    finally:
        kill_all(list(parts.values()))


def _ready_model(
    config: Config,
    folder: RunFolder,
    interrupts: Interrupts,
    display: Display,
    meter: ResourceMeter,
    lifeline: Lifeline,
) -> Path | None:
    """Folder of the model, checked; None when the user asked to stop while it was made."""
    if config.is_scripted:
        return write_model_folder(folder.root / "model")
    if is_folder(config.model.path):
        return Path(config.model.path).resolve()
    progress = ModelProgress(0.0, f"making model {config.model.path!r}")

    def on_progress(news: ModelProgress | None) -> None:
        nonlocal progress
        progress = news or progress
        meter.tick()
        waits = ProcessStatus(name="model", state="working", waits_for=progress.text)
        status = RunStatus(state="warm_start", steps=config.train.steps, processes=[waits])
        status.metrics["warm_start/share"] = progress.share
        _show(folder, display, status)

    started_s, cpu_started_s = time.monotonic(), meter.cpu_now_s()
    made = make_model(config, folder, lifeline, interrupts, on_progress)
    meter.warm_start(time.monotonic() - started_s, meter.cpu_now_s() - cpu_started_s)
    if made is not None:
        check_model(config, made)
    return made


def _show(folder: RunFolder, display: Display, status: RunStatus) -> None:
    # Only before the coordinator lives: from then on the file is its own.
    write_status(folder.status, status.stamp())
    display.show(status)


def _write_last_status(folder: RunFolder, state: str, failure: str | None) -> None:
    """Say how the run ended when the coordinator could not."""
    status = read_status(folder.status) or RunStatus(state=state)
    if failure is not None:
        status.state, status.failure = "failed", failure
    elif status.state not in ENDED_STATES:
        status.state = "stopped" if state == "interrupted" else state
    status.processes = []
    # The line is printed in any case; a full disk must not replace it by a traceback.
    with contextlib.suppress(OSError):
        write_status(folder.status, status.stamp())


def _clean_up(config: Config, folder: RunFolder, info: dict[str, Any]) -> None:
    """Remove what lives outside the run folder: the socket's folder and the weight files."""
    if "socket_folder" in info:
        remove_endpoint(Path(info["socket_folder"]))
    if "model_folder" in info:
        remove_weights_folder(weights_folder(config, folder.root))
