"""The kinds of alerts: what each means and what to do. `docs/guard.md` holds the same table."""

from __future__ import annotations

from typing import NamedTuple


class AlertKind(NamedTuple):
    """One kind."""

    meaning: str
    action: str
    """What to do, when the alert itself does not say more."""


KINDS: dict[str, AlertKind] = {
    "jail_level": AlertKind("The jail runs without all of its layers.", "see `spade-async doctor`"),
    "nonfinite_update": AlertKind(
        "Loss, a gradient or a weight was not finite: the update was not applied and the batch is "
        "set aside.",
        "see `spade-async replay`; nothing needs to be done when it stays rare",
    ),
    "nonfinite_stop": AlertKind(
        "`learner.max_nonfinite` updates in a row were not finite: the run stops with a "
        "checkpoint.",
        "replay the batches, lower learner.lr, then resume",
    ),
    "weights_not_attested": AlertKind(
        "A generator's weights do not agree with the learner's numbers: it is set aside and loads "
        "them again.",
        "nothing to do while it stays rare; else check the memory of that machine",
    ),
    "stale_generator": AlertKind(
        "A generator has not loaded the newest two weight sets.", "see the log of that generator"
    ),
    "checkpoint_damaged": AlertKind(
        "A checkpoint is truncated or corrupt; the one before it is used.",
        "check the disk; the damaged folder is kept under another name",
    ),
    "disk_full": AlertKind(
        "Something could not be written for want of room: the run waits.",
        "free some space; the run goes on by itself",
    ),
    "disk_room": AlertKind("There is room again: the run goes on.", ""),
    "disk_budget": AlertKind(
        "The run folder needs more than run.disk_budget and nothing more may be removed.",
        "raise run.disk_budget or lower checkpoint.keep",
    ),
    "groups_missing": AlertKind(
        "One group after the other is missing by our own fault; the reason of the last is told.",
        "mend what the reason names; the run ends by itself when no step is made any more",
    ),
    "evaluation_skipped": AlertKind(
        "An evaluation was due while the one before still ran: that step is not scored.",
        "raise eval.every or lower eval.instances_per_level",
    ),
    "over_bound": AlertKind(
        "A sample was older than its staleness bound when its batch was made: a fault of the "
        "schedule. It is counted and not trained.",
        "keep the run folder and report it",
    ),
    "straggler_cut": AlertKind(
        "The learner waited `async.straggler_s` for a group and nothing of it came: what was "
        "missing of it is cut, the rest of it is trained.",
        "nothing to do while it stays rare; else raise async.straggler_s or look at the named "
        "environment",
    ),
    "evaluation_missing": AlertKind(
        "Episodes of an evaluation are missing, cut, or of another version than it states: they "
        "are not scored; the alert says what success would be if they had failed.",
        "see logs/coordinator.log and the log of the generator",
    ),
    "wrong_tags": AlertKind(
        "Tokens of a result cannot be of the versions they claim: its sample is missing and is not "
        "trained.",
        "a fault of the generator that sent it: see its log and restart the run",
    ),
    "divergence": AlertKind(
        "The generating and the learning policy are further apart than the age table supports for "
        "the correction rule.",
        "lower async.agent_bound or learner.lr, or choose another learner.correction.rule",
    ),
    "update_skipped": AlertKind(
        "A step had nothing to apply: the correction rule masked every token. The weights are "
        "those of the step before.",
        "widen the rule's band, lower the staleness bound, or choose another "
        "learner.correction.rule",
    ),
    "empty_batch": AlertKind(
        "No sample of the groups that were due can be trained (cut, without tokens, alone, all "
        "worth the same): the step waits for other groups. Reasons are in the alert, and in the "
        "ledger for each sample.",
        'raise async.straggler_s when samples were cut; learner.zero_variance="keep" trains equal '
        "ones",
    ),
    "part_died": AlertKind(
        "A generator or the learner died; it is started again while the run goes on.",
        "nothing to do while it stays rare; else see the log of that part in logs/",
    ),
    "part_hangs": AlertKind(
        "A part made no progress for longer than its state allows: stacks are in hang-*.txt.",
        "see the report; supervisor.on_hang says what is done",
    ),
    "evaluation_given_up": AlertKind(
        "A generator died during an evaluation whose weights are gone by now.", ""
    ),
    "designer_collapse": AlertKind(
        "The designer writes few shapes or mostly one family of programs, against its own start "
        "and in absolute terms.",
        "raise designer.novelty_penalty or agent.pool_share, lower designer.plays_per_skeleton or "
        "learner.lr; see docs/guards.md",
    ),
    "hint_leak": AlertKind(
        "The hint alone is the answer on many seeds: regret is paid for giving solutions away.",
        "set regret.leak_discount=true; see docs/guards.md",
    ),
    "forgetting": AlertKind(
        "Held-out accuracy fell below its first or best value by more than chance explains.",
        "raise agent.pool_share or learner.kl_to_start, lower learner.lr, or go back to an earlier "
        "checkpoint; see docs/guards.md",
    ),
    "guard_cleared": AlertKind(
        "What one of the three alarms above told is over: the figure is back within its limit.", ""
    ),
    "negative_regret": AlertKind(
        "Hints of a skill make the agent worse: its regret is significantly negative. "
        "`regret.negative` says what is done.",
        "nothing needs to be done; see docs/regret.md, and how hints of that skill read",
    ),
    "hints_again": AlertKind("Hints of such a skill are tried again.", ""),
    "pool_program": AlertKind(
        "A program of agent.pool fails and is not played again.",
        "see which: spade-async env check FOLDER",
    ),
    "other": AlertKind("Anything else.", ""),
}
