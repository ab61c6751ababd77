"""What the run remembers of the environments it has designed, and recalls from the ledger."""

from __future__ import annotations

from spade_async.config.schema import Config
from spade_async.coordinator.core import Core
from spade_async.coordinator.state import PlayGroup
from spade_async.grounding.diversity import Design
from spade_async.grounding.memory import Memory
from spade_async.grounding.reference_memory import ReferenceMemory
from spade_async.ledger import Ledger
from spade_async.types import Arm, RegretClass, RegretEstimate


def open_memory(config: Config, ledger: Ledger) -> Memory:
    """The environment memory over its table in the ledger, by the rules of `run.compat`."""
    grounding = config.grounding
    kind = ReferenceMemory if config.run.compat == "reference" else Memory
    return kind(
        ledger,
        grounding.memory_capacity,
        near_duplicate=grounding.near_duplicate,
        num_avoid=grounding.num_avoid,
    )


def remember(core: Core, play: PlayGroup, estimate: RegretEstimate, skill: str) -> None:
    """Take an environment that was measured into memory."""
    returns = [value for value in play.returns(Arm.NO_HINT) if value is not None]
    core.memory.add(
        play.environment,
        estimate,
        core.step,
        skill=skill,
        win_rate=sum(value > 0 for value in returns) / len(returns),
        signature=core.ledger.signature(play.environment.environment_id),
    )


def recall_memory(core: Core) -> None:
    """Fill the memory of a run that began before it had a table, oldest estimates first."""
    if len(core.memory) or core.ledger.get_state("memory") is not None:
        return
    rows = core.ledger.environments(
        2 * core.config.grounding.memory_capacity, origin="designer", with_estimate=True
    )
    with core.ledger.transaction():
        for row in reversed(rows):
            fields = dict(row.estimate or {})
            fields["regret_class"] = RegretClass(fields["regret_class"])
            estimate = RegretEstimate(**fields)
            win_rate = min(1.0, max(0.0, estimate.mean_no_hint))
            core.memory.add(row.environment, estimate, row.created_step, win_rate=win_rate)


def recall_diversity(core: Core) -> None:
    """Count the designs of the run again, as the process before had counted them."""
    ledger, diversity = core.ledger, core.diversity
    recent = [
        Design(sample_id, skeleton, ledger.signature(environment_id))
        for sample_id, skeleton, environment_id in ledger.last_designs(diversity.window)
    ]
    sampled = [
        Design(sample_id, skeleton, ledger.signature(environment_id))
        for sample_id, skeleton, environment_id in diversity.sample_of(ledger.last_designs())
    ]
    diversity.restore(ledger.skeleton_counts(), recent, sampled)
