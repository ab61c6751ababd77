"""What `spade-async doctor CONFIG` says: whether the configuration holds, what its bounds do.

Little's law (`simulate/startup.py`) says before anything runs whether a staleness bound throttles
the generators; `train` says the same at its start.
"""

from __future__ import annotations

from pathlib import Path

from spade_async.cluster.gpus import check_gpus
from spade_async.commands.finding import Finding
from spade_async.config.load import resolve
from spade_async.config.schema import Config
from spade_async.config.size import in_units
from spade_async.engine.vllm.installed import check_vllm
from spade_async.errors import SpadeError
from spade_async.grounding.corpus import check_corpus
from spade_async.simulate.startup import bound_lines
from spade_async.supervisor.check_start import (
    check_engine,
    check_room_for_prompts,
    check_unmade_model,
)
from spade_async.supervisor.hub import is_hub_id
from spade_async.supervisor.model import is_folder
from spade_async.supervisor.model_folder import check_model_folder
from spade_async.supervisor.model_numbers import check_numbers
from spade_async.supervisor.room import check_weights_room, model_bytes


def config_findings(path: Path | None) -> list[Finding]:
    """Of a configuration file or run folder; none without one."""
    if path is None:
        return []
    try:
        config = resolve(path, [])
    except SpadeError as fault:
        return [Finding("configuration", False, True, str(fault), f"mend {path}")]
    found = [Finding("configuration", True, True, f"{path}: run {config.run.name!r}")]
    try:
        check_corpus(config)
    except SpadeError as fault:
        found.append(Finding("corpus", False, True, str(fault), "give another grounding.corpus"))
    else:
        found.append(Finding("corpus", True, True, f"{_named(config)}: holds documents"))
    found += _engine(config) + _gpus(config) + _model(config)
    for line in bound_lines(config):
        about, _, text = line.partition(": ")
        is_free = "will throttle" not in text
        found.append(Finding(about, is_free, False, text))
    return found


def _engine(config: Config) -> list[Finding]:
    """Whether vLLM, of the right version and beside the right torch, is there when it is asked."""
    if config.engine.kind != "vllm":
        return []
    try:
        check_vllm(gpus=config.cluster.gpus)
    except SpadeError as fault:
        return [Finding("engine", False, True, str(fault))]
    return [Finding("engine", True, True, "vLLM, of the version that this project uses")]


def _gpus(config: Config) -> list[Finding]:
    """Whether the GPUs that the configuration places its parts on are there."""
    try:
        check_gpus(config)
    except SpadeError as fault:
        return [Finding("GPUs", False, True, str(fault))]
    return []


def _model(config: Config) -> list[Finding]:
    """The model folder, when one is named, and the room for its weights."""
    if config.is_scripted:
        return []
    if not is_folder(config.model.path):
        try:
            check_unmade_model(config)
        except SpadeError as fault:
            return [Finding("prompts", False, True, str(fault))]
        return []
    if is_hub_id(config.model.path):
        detail = f"{config.model.path}: taken from the hub's cache, or fetched, when a run starts"
        return [Finding("model", True, False, detail)]
    path = Path(config.model.path)
    try:
        check_model_folder(path, config.model.max_context_tokens)
        check_numbers(path)
    except SpadeError as fault:
        return [Finding("model", False, True, str(fault))]
    found = [Finding("model", True, True, f"{path}: whole, {in_units(model_bytes(path))}")]
    for name, check in (
        ("model in vLLM", check_engine),
        ("room for weights", check_weights_room),
        ("prompts", check_room_for_prompts),
    ):
        try:
            check(config, path)
        except SpadeError as fault:
            found.append(Finding(name, False, True, str(fault)))
    return found


def _named(config: Config) -> str:
    corpus = config.grounding.corpus
    return corpus if isinstance(corpus, str) else ", ".join(source.path for source in corpus)
