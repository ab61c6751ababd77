"""A configuration worked out: devices, memory, rates, age, disk; and what cannot be."""

from __future__ import annotations

import os
from dataclasses import dataclass

from spade_async.cluster.placement import Placement, place
from spade_async.config.schema import Config
from spade_async.config.size import in_units
from spade_async.planning.architecture import Architecture, architecture_of
from spade_async.planning.disk import Disk, disk_of
from spade_async.planning.holding import Holding
from spade_async.planning.memory import Device, devices, jail_bytes
from spade_async.planning.rates import Hourly, Rates, Work, hourly, work_of
from spade_async.simulate.durations import LogNormal
from spade_async.simulate.natural_age import check_bounds
from spade_async.simulate.startup import SIGMA, bound_lines, load_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a configuration will take."""

    shape: Architecture
    placement: Placement
    devices: list[Device]
    """GPUs by number, then the machine's memory."""
    work: Work
    rates: Rates
    pace: Hourly | None
    disk: Disk
    jail_bytes: int
    """Of all workers of the jail at their limit."""
    staleness: list[str]
    """One line per role."""
    problems: list[str]
    """Why it cannot run, each with its key."""
    remarks: list[str]
    """What is worth knowing and stops nothing."""

    @property
    def fits(self) -> bool:
        """Whether nothing stands against it."""
        return not self.problems


def make_plan(config: Config, rates: Rates) -> Plan:
    """Work a configuration out.

    Raises:
        ConfigError: a network that is not known, or a placement that contradicts itself.
    """
    shape, placement = architecture_of(config), place(config)
    host = config.cluster.host_memory or machine_bytes()
    found = devices(config, shape, placement, host)
    holding = Holding.of(config, shape)
    work = work_of(config, rates)
    pace = hourly(config, work, rates)
    problems = [line for device in found if (line := device.problem()) is not None]
    problems += _context_problems(config, shape) + _kv_problems(config, holding, found)
    return Plan(
        shape=shape,
        placement=placement,
        devices=found,
        work=work,
        rates=rates,
        pace=pace,
        disk=disk_of(config, holding, work, pace),
        jail_bytes=jail_bytes(config),
        staleness=_staleness(config, rates),
        problems=problems,
        remarks=_remarks(config, placement, holding, found),
    )


def machine_bytes() -> int:
    """Memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _staleness(config: Config, rates: Rates) -> list[str]:
    """One line per role, from the lengths that are known."""
    if rates.design_tokens is None and rates.episode_tokens is None:
        return bound_lines(config)
    load = load_of(
        config, design=_lengths(rates.design_tokens), episode=_lengths(rates.episode_tokens)
    )
    return bound_lines(config, check_bounds(load, *config.async_.bounds))


def _lengths(mean: float | None) -> LogNormal | None:
    return None if mean is None else LogNormal.of_mean(mean, SIGMA)


def kv_bytes(found: list[Device], index: int) -> int | None:
    """Keys and values that generator `index` has room for on each of its devices."""
    for device in found:
        for item in device.items:
            if item.name == f"gen-{index} KV":
                return item.num_bytes
    return None


def _context_problems(config: Config, shape: Architecture) -> list[str]:
    longest = config.model.max_context_tokens
    if not shape.max_positions or longest <= shape.max_positions:
        return []
    return [
        f"model.max_context_tokens={longest} is more than the {shape.max_positions} positions of "
        f"{shape.name}: lower it"
    ]


def _kv_problems(config: Config, holding: Holding, found: list[Device]) -> list[str]:
    """An engine does not start when one sequence of full length has no room."""
    room = kv_bytes(found, 0)
    one = config.model.max_context_tokens * holding.kv_bytes_per_token
    if room is None or room >= one:
        return []
    return [
        f"gen-0 has {in_units(room)} for keys and values, one sequence of "
        f"model.max_context_tokens={config.model.max_context_tokens} takes {in_units(one)}: raise "
        "engine.vllm.gpu_memory_utilization or engine.vllm.tensor_parallel, or lower the context"
    ]


def _remarks(
    config: Config, placement: Placement, holding: Holding, found: list[Device]
) -> list[str]:
    lines = []
    room = kv_bytes(found, 0)
    if room is not None and holding.kv_bytes_per_token:
        tokens = room // holding.kv_bytes_per_token
        lines.append(
            f"keys and values: room for {tokens:,} tokens per generator, "
            f"{tokens / config.model.max_context_tokens:.1f} sequences of full length; "
            f"engine.slots={config.engine.slots} have {tokens // config.engine.slots:,} tokens each"
        )
    if placement.idle:
        numbers = ", ".join(map(str, placement.idle))
        lines.append(
            f"GPU {numbers} would be idle: raise generator.count, learner.ranks or "
            "engine.vllm.tensor_parallel, or lower cluster.gpus"
        )
    if placement.is_shared:
        lines.append(
            "learner and generator share GPU 0 and both stay on it: engine.vllm.gpu_memory_"
            "utilization has to leave room for the learner"
        )
    return lines
