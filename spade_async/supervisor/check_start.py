"""What would stop a run, found before it has a folder, a process or a model in memory.

Cheap checks come first. `train` stops at the first; `doctor CONFIG` tells all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from spade_async.cluster.gpus import check_gpus
from spade_async.config.schema import Config
from spade_async.designer.skills import chosen_skills, domain_skills
from spade_async.domain import load_domain
from spade_async.engine.vllm import left_names
from spade_async.engine.vllm.arguments import engine_arguments
from spade_async.engine.vllm.installed import check_vllm, look
from spade_async.environment.jail_policy import sandbox_policy
from spade_async.environment.pool_folder import read_pool
from spade_async.generator.engines import codecs_of, make_tokens
from spade_async.generator.prompt_room import check_prompts
from spade_async.grounding.corpus import check_corpus
from spade_async.supervisor.model import is_folder
from spade_async.supervisor.model_folder import check_model_folder
from spade_async.supervisor.model_numbers import check_numbers
from spade_async.supervisor.room import check_weights_room
from spade_async.transport.endpoint import check_free
from spade_async.transport.keys import check_keys
from spade_async.weights.folder import check_shared_memory, sweep_stale_folders


def check_start(config: Config) -> None:
    """See that a run can start.

    Raises:
        SpadeError: it cannot; one line with the remedy.
    """
    check_gpus(config)
    if config.engine.kind == "vllm":
        check_vllm(gpus=config.cluster.gpus)
    chosen_skills(config.designer.skills, domain_skills(load_domain(config.domain.hook)))
    sandbox_policy(config)  # profiles and what else only the jail can check
    if config.agent.pool:
        read_pool(config.agent.pool)
    check_corpus(config)
    if config.link.keys is not None:
        check_keys(Path(config.link.keys))
    check_free(config.link)
    if config.weights.location == "shared_memory":
        sweep_stale_folders()
        left_names.sweep()
        check_shared_memory()
    if config.is_scripted:
        return
    if is_folder(config.model.path):
        check_model(config, Path(config.model.path))
    else:
        check_unmade_model(config)


def check_model(config: Config, folder: Path) -> None:
    """See that a model folder is whole, and that engine, prompts and memory can work with it.

    Raises:
        SpadeError: one line with the remedy.
    """
    check_model_folder(folder, config.model.max_context_tokens)
    check_engine(config, folder)
    check_weights_room(config, folder)
    check_room_for_prompts(config, folder)
    check_numbers(folder)


def check_engine(config: Config, folder: Path) -> None:
    """What vLLM would be asked for: this model, on this device, with this adapter.

    Raises:
        ConfigError: it cannot.
    """
    if config.engine.kind == "vllm":
        lora = config.learner.lora
        engine_arguments(
            folder,
            config.engine,
            config.model.max_context_tokens,
            is_cpu=look().is_cpu_build,
            lora=lora if lora.pushes_adapter else None,
        )


def check_room_for_prompts(config: Config, folder: Path) -> None:
    """Hold the shortest prompts against the context, where the tokenizer can be read quickly.

    Raises:
        ConfigError: no chat template, no thinking switch, or no room for a reply.
    """
    if (folder / "tokenizer.json").is_file():
        codecs = make_tokens(config, folder, quick=True)
        check_prompts(config, load_domain(config.domain.hook), codecs)


def check_unmade_model(config: Config) -> None:
    """The same for a model that the domain will make, when it has the tokenizer already.

    Raises:
        ConfigError: as above.
    """
    domain = load_domain(config.domain.hook)
    make = getattr(domain, "make_tokenizer", None)
    if make is None:
        return
    tokenizer = cast(Callable[[str], Any], make)(config.model.path)
    if tokenizer is not None:
        check_prompts(config, domain, codecs_of(config, tokenizer))
