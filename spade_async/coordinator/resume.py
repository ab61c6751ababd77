"""Builds the coordinator's memory: empty for a new run, from the ledger for a resumed one.

After a crash at any instant: what was acknowledged is in the ledger, so groups are rebuilt from
their samples and only what is missing is asked for again. The newest checkpoint that the ledger
names and the disk holds is where the learner goes on; batches consumed after it are undone in one
transaction and trained again in the same composition; a batch that was planned and not reported is
sent again. A checkpoint further on than the ledger is ignored. A resume opens a new branch, so a
version is never reused.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from spade_async.config.load import digest
from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.coordinator import hints
from spade_async.coordinator.batch import Plan, PlannedRow
from spade_async.coordinator.core import Core
from spade_async.coordinator.dispatch import Dispatcher
from spade_async.coordinator.fruitless import Fruitless
from spade_async.coordinator.guards import Guards, guards_off
from spade_async.coordinator.recall import open_memory, recall_diversity, recall_memory
from spade_async.coordinator.regroup import regroup, restore_schedule
from spade_async.coordinator.schedule import Schedule
from spade_async.coordinator.versions import VersionBook
from spade_async.designer.novelty import SkeletonQuota, SkeletonWindow
from spade_async.designer.rewards.learning_potential import Trackers
from spade_async.disk.manifest import damage
from spade_async.domain import load_domain
from spade_async.errors import RunFolderError
from spade_async.grounding.corpus import open_corpus
from spade_async.grounding.diversity import Diversity
from spade_async.ledger import BatchRow, Ledger, VersionRow
from spade_async.telemetry.alerts import Alerts
from spade_async.transport.hub import Hub
from spade_async.types import PolicyVersion, Role

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Resumed:
    """Where the run goes on."""

    core: Core
    learner: dict[str, Any]
    """`Welcome.resume` of the learner."""
    replay: list[Plan] = field(default_factory=list)
    """Batches to be trained first, in this composition."""
    purge_step: int | None = None
    """TensorBoard events at or after this step are of an abandoned past, or may be missing."""


def rebuild(config: Config, folder: RunFolder, hub: Hub) -> Resumed:
    """State of a run, new or resumed, ready for the first message."""
    fresh = not folder.ledger.exists()
    info = json.loads(folder.info.read_text())
    # The supervisor has compared the values themselves before it wrote these down.
    same = frozenset(info.get("config_digests", ()))
    ledger = Ledger.open(
        folder.ledger, create=fresh, config_digest=digest(config), same_digests=same
    )
    core = _empty_core(config, folder, ledger, hub)
    learner = {
        "branch": 0,
        "step": 0,
        "checkpoint": None,
        "keep_checkpoints": [],
        "model_folder": info["model_folder"],
    }
    versions = ledger.versions()
    if not versions:
        core.versions.add(PolicyVersion(0, 0), 0)
        return Resumed(core=core, learner=learner)
    return _resume(core, learner, versions)


def _empty_core(config: Config, folder: RunFolder, ledger: Ledger, hub: Hub) -> Core:
    agent_bound, designer_bound = config.async_.bounds
    designer, agent = config.designer, config.agent
    return Core(
        config=config,
        folder=folder,
        ledger=ledger,
        schedule=Schedule(
            agent_bound=agent_bound,
            designer_bound=designer_bound,
            agent_quota=agent.groups_per_step,
            designer_quota=designer.groups_per_step,
            group_size=designer.group_size,
            pool_share=agent.pool_share,
            designer_delay=designer.reward.delay,
            fill=config.async_.fill,
        ),
        versions=VersionBook(),
        dispatcher=Dispatcher(hub),
        domain=load_domain(config.domain.hook),
        corpus=open_corpus(
            config.grounding.corpus,
            max_document_words=config.grounding.max_document_words,
            seed=config.run.seed,
            is_reference=config.run.compat == "reference",
        ),
        alerts=Alerts(folder.alerts, command=config.run.alert_command),
        memory=open_memory(config, ledger),
        diversity=Diversity(config.grounding.diversity_window, config.run.seed),
        skeletons=SkeletonWindow(designer.novelty_window),
        trackers=Trackers(
            gamma_fast=designer.reward.gamma_fast, gamma_slow=designer.reward.gamma_slow
        ),
        quota=SkeletonQuota(
            limit=designer.plays_per_skeleton,
            window=designer.groups_per_step * designer.group_size,
        ),
        guards=Guards(config.guards, guards_off(config)),
        hints=hints.monitor(config),
        fruitless=Fruitless(
            {
                Role.DESIGNER: (designer_bound + 1) * designer.groups_per_step,
                Role.AGENT: (agent_bound + 1) * agent.groups_per_step,
            }
        ),
    )


def _resume(core: Core, learner: dict[str, Any], versions: list[VersionRow]) -> Resumed:
    ledger = core.ledger
    for row in versions:
        core.versions.add(row.version, row.ordinal)
    batches = undo(core, learner)
    for key, part in (
        ("corpus", core.corpus),
        ("memory", core.memory),
        ("skeletons", core.skeletons),
        ("quota", core.quota),
        ("guards", core.guards),
        ("hints", core.hints),
        ("guards_forgetting", core.guards.forgetting),
        ("trackers", core.trackers),
    ):
        state = ledger.get_state(key)
        if state is not None:
            part.restore(state)
    recall_memory(core)
    recall_diversity(core)
    core.counters = Counter(ledger.get_state("counters") or {})
    core.counters["resumes"] += 1
    core.next_number = int(ledger.get_state("next_number") or 0)
    core.shown_step = min(int(ledger.get_state("shown_step") or 0), core.step)
    with ledger.transaction():
        replay = replays(core, batches)
        regroup(core)
        restore_schedule(core, ledger.last_ordinal(), num_replays=len(replay))
    log.info(
        "resumed at step %d on branch %d: %d batches to train again",
        core.step,
        core.branch,
        len(replay),
    )
    return Resumed(
        core=core,
        learner=learner,
        replay=replay,
        purge_step=core.shown_step + 1,
    )


def undo(core: Core, learner: dict[str, Any]) -> list[BatchRow]:
    """Fall back to the newest checkpoint, on a new branch; what is to be trained first.

    Steps after the checkpoint are undone in one transaction; without any, only the branch is new.

    Args:
        core: `branch`, `step` and the newest version change.
        learner: `Welcome.resume` of the learner; changed in place.
    """
    ledger = core.ledger
    versions = ledger.versions()
    start = _checkpoint(core, versions)
    if any(row.ordinal > start.ordinal and not row.is_abandoned for row in versions):
        with ledger.transaction(full=True):
            ledger.undo_after(start.ordinal)
    core.branch = max(row.version.branch for row in versions) + 1
    core.step = start.version.step
    # Age counts every learner step ever done, so the abandoned ones stay in the count. Read after
    # the undoing: the ordinal of an undone plan is spent as well.
    core.versions.add(PolicyVersion(core.branch, core.step), ledger.last_ordinal())
    learner |= {
        "branch": core.branch,
        "step": core.step,
        "checkpoint": start.checkpoint,
        "keep_checkpoints": [start.checkpoint] if start.checkpoint else [],
    }
    return ledger.unfinished_batches()


def replays(core: Core, batches: list[BatchRow]) -> list[Plan]:
    """Plans of the batches to be trained again, in order; inside a transaction."""
    newest = core.ledger.last_ordinal()
    plans = [_replayed(core, batch, newest + i) for i, batch in enumerate(batches)]
    for plan in plans:
        if not plan.rows and plan.replays is not None:
            core.ledger.abandon_replay(plan.replays)
    return [plan for plan in plans if plan.rows]


def _checkpoint(core: Core, versions: list[VersionRow]) -> VersionRow:
    """Newest surviving version that can be loaded: a checkpoint on disk, or the start model.

    A checkpoint that is damaged is named, moved away and passed over.
    """
    damaged: list[str] = []
    found = _first_whole(core, versions, damaged)
    if damaged:
        core.alert(
            f"{'; '.join(damaged)}: now damaged-..., the one before is used and the batches after "
            "it are trained again",
            kind="checkpoint_damaged",
        )
    if found is None:
        raise RunFolderError(
            f"{core.folder.checkpoints}: no checkpoint named by the ledger is on disk and whole; "
            "restore the folder or start a new run"
        )
    return found


def _first_whole(core: Core, versions: list[VersionRow], damaged: list[str]) -> VersionRow | None:
    for row in sorted(versions, key=lambda r: (r.ordinal, r.version.branch), reverse=True):
        if row.is_abandoned:
            continue
        if row.checkpoint is None and row.version.step == 0:
            return row
        if row.checkpoint is None:
            continue
        folder = core.folder.checkpoints / row.checkpoint
        if not folder.is_dir():
            continue
        wrong = damage(folder)
        if wrong is None:
            return row
        aside = folder.with_name(f"damaged-{row.checkpoint}")
        shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
        damaged.append(f"checkpoint {row.checkpoint} is damaged ({wrong})")
    return None


def _replayed(core: Core, batch: BatchRow, ordinal: int) -> Plan:
    """The same composition, less what is over its bound by now: that is lost to the rollback."""
    agent_bound, designer_bound = core.config.async_.bounds
    rows: list[PlannedRow] = []
    for sample in batch.samples:
        row = core.ledger.sample(sample.sample_id)
        assert row is not None, f"{sample.sample_id} is not in the ledger"
        assert row.oldest_ordinal is not None, f"{sample.sample_id} has no sampled token"
        role = Role(row.role)
        staleness = ordinal - row.oldest_ordinal
        if staleness > (agent_bound if role is Role.AGENT else designer_bound):
            core.counters["lost_to_rollback"] += 1
            core.ledger.mark_unused([sample.sample_id], "lost_to_rollback")
            continue
        rows.append(
            PlannedRow(sample.sample_id, sample.group_id, role, sample.advantage, staleness)
        )
    return Plan(
        rows,
        frozenset(sample.group_id for sample in batch.samples),
        replays=batch.ordinal if batch.state == "replay" else batch.replays,
    )
