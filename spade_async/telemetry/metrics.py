"""The catalog of every metric: tag, unit, x-axis and meaning.

`docs/metrics.md` is this catalog as a page (`page()`), and the TensorBoard writer refuses a tag
that is not here: no number is shown to a user without saying what it is. Families of tags are
written with ``<placeholders>`` that stand for one path part.
"""

from __future__ import annotations

import re
from functools import lru_cache

from spade_async.telemetry.life_metrics import LIFE_METRICS
from spade_async.telemetry.metric import LEARNER_STEP, Metric
from spade_async.telemetry.metric import per_step as _m
from spade_async.telemetry.metrics_contract import CONTRACT
from spade_async.telemetry.metrics_critic import CRITIC
from spade_async.telemetry.metrics_regret import REGRET
from spade_async.telemetry.metrics_reward import REWARD

METRICS: dict[str, Metric] = {
    **REGRET,
    **CRITIC,
    # Designer.
    **CONTRACT,
    "designer/reward_mean": _m(
        "reward", "Mean pay of a design: regret less penalties, or invalid_reward."
    ),
    **REWARD,
    "designer/skeletons_per_batch": _m(
        "skeletons", "Distinct program shapes among the valid designs."
    ),
    "designer/leak_share": _m(
        "share", "Mean share of probed seeds where the hint alone is the answer."
    ),
    "designer/skeleton_share": _m(
        "share",
        "Mean share of a design's skeleton among the designer.novelty_window designs before it: "
        "what designer.novelty_penalty multiplies.",
    ),
    "designer/quota_refused": _m(
        "designs", "Valid designs not played: their skeleton had its plays."
    ),
    "designer/copies_refused": _m(
        "designs", "Valid designs not played: near copies of a remembered environment."
    ),
    "designer/prompts_cut": _m("designs", "Designs whose prompt was cut to fit the context."),
    "designer/prompts_skipped": _m("designs", "Designs skipped: their prompt fits no context."),
    "mix/<label>/<value>": _m(
        "share", "Played environments of the step that carry this label value."
    ),
    "labels/mean/<label>": _m(
        "label value", "Mean of a numeric label over the designed environments."
    ),
    # What grounds the designer.
    "grounding/documents_used": _m("documents", "Documents drawn from the corpus so far."),
    "grounding/bad_rows": _m(
        "rows", "Rows of the corpus met so far that hold no document; each counts once."
    ),
    "grounding/epoch": _m("epochs", "How often every document of every source was used."),
    "grounding/memory_entries": _m("environments", "Environments that memory holds."),
    "grounding/near_duplicates": _m(
        "environments", "Environments so far that were near copies of a remembered one."
    ),
    # Diversity of the valid designs.
    "diversity/skeletons": _m(
        "skeletons", "Distinct skeletons among the last grounding.diversity_window valid designs."
    ),
    "diversity/skeleton_entropy": _m(
        "nats", "Entropy of the skeletons of the same designs: 0 for one, ln(window) for all new."
    ),
    "diversity/vendi": _m(
        "programs", "Vendi score of the same designs: how many wholly distinct ones they are worth."
    ),
    "diversity/vendi_share": _m("share", "The same over their number; 1 is all distinct."),
    "diversity/run_skeletons": _m("skeletons", "Distinct skeletons of the run's valid designs."),
    "diversity/run_skeleton_entropy": _m("nats", "Entropy of the skeletons of all of them."),
    "diversity/run_vendi": _m(
        "programs", "Vendi score of a uniform sample of 64 valid designs of the run."
    ),
    # Staleness.
    "staleness/agent_mean": _m("learner steps", "Mean age of the agent samples that were trained."),
    "staleness/agent_max": _m(
        "learner steps", "Age of the oldest agent sample; never above its bound."
    ),
    "staleness/designer_mean": _m("learner steps", "Mean age of the designer samples trained."),
    "staleness/designer_max": _m(
        "learner steps", "Age of the oldest designer sample; within its bound."
    ),
    # In flight.
    "async/in_flight": _m(
        "sequences", "Mean number of designs and episodes at the generators, all of them."
    ),
    "async/in_flight_limit": _m(
        "sequences", "Up to how many the generators get more tasks (async.controller)."
    ),
    "async/agent_limit": _m(
        "groups", "Agent groups the controller lets be outstanding; at most the bound's places."
    ),
    "async/designer_limit": _m(
        "groups", "Designer groups it lets be outstanding; at most what the bound allows."
    ),
    # Learner, as reported with each step.
    "learner/loss": _m("loss", "Policy-gradient loss of the step, both roles."),
    "learner/grad_norm": _m("norm", "Gradient norm before clipping."),
    "learner/lr": _m("learning rate", "Learning rate used by the step."),
    "learner/entropy_designer": _m("nats per token", "Policy entropy on designer tokens."),
    "learner/entropy_agent": _m("nats per token", "Policy entropy on agent tokens."),
    "learner/kl_generator": _m(
        "nats per token", "KL estimate from the generating to the learning policy."
    ),
    "learner/kl_to_start": _m("nats per token", "KL estimate to the model the run started from."),
    "learner/ratio_mean": _m("ratio", "Mean importance ratio learner/generator; 1 is on-policy."),
    "learner/ratio_max": _m("ratio", "Largest importance ratio of the step, before truncation."),
    "learner/ratio_mean_agent": _m("ratio", "Mean importance ratio over agent tokens."),
    "learner/ratio_mean_designer": _m("ratio", "Mean importance ratio over designer tokens."),
    "learner/clip_share": _m(
        "share", "Tokens whose importance weight the correction rule truncated, clipped or masked."
    ),
    "learner/weight_mean_raw": _m(
        "ratio", "Mean importance weight of the correction rule before clamping and masking."
    ),
    "learner/weight_mean": _m("ratio", "The same after it: what multiplies the advantages."),
    "learner/truncated_mass": _m(
        "share", "Part of the weights' sum that clamping and masking took away."
    ),
    "learner/masked_share_positive": _m(
        "share", "Tokens of positive advantage that the correction left without a gradient."
    ),
    "learner/masked_share_negative": _m(
        "share", "Tokens of negative advantage that the correction left without a gradient."
    ),
    "learner/stale_gradient_share": _m(
        "share", "Part of the summed token gradients that comes from samples older than 0 steps."
    ),
    "learner/kl_age/<bin>": _m(
        "nats per token",
        "KL from the generating to the learning policy over samples of this age: 0, 1, 2, 3-4, "
        "5-8, 9-16, 17+ learner steps.",
    ),
    "learner/skipped": _m(
        "updates", "1 when the step had nothing to apply: every token was masked, or all was cut."
    ),
    "learner/ess": _m(
        "share", "Effective sample size of the importance weights over their number."
    ),
    "learner/tokens": _m("tokens", "Tokens with a loss in the step."),
    "learner/tokens_per_s": _m("tokens/s", "Tokens with a loss over the seconds of the update."),
    "learner/padding_share": _m(
        "share", "Part of the tokens read in the first pass over the batch that was padding."
    ),
    "learner/micro_batches": _m("passes", "Forward and backward passes over the batch."),
    "learner/experts_balance": _m(
        "ratio",
        "Mixture of experts: experts x sum of load share x mean router probability, mean over "
        "layers; 1 is even.",
    ),
    "learner/experts_max_load": _m(
        "ratio", "Load of a layer's busiest expert over the even load, mean over layers."
    ),
    "learner/experts_idle_share": _m("share", "Experts that no token of the step went through."),
    "learner/experts_replayed_share": _m(
        "share",
        "Choices of experts, over tokens and layers, that were the engine's and not the learner's "
        "own.",
    ),
    "learner/experts_changed_share": _m(
        "share", "Of those, what the learner's own router would not have chosen."
    ),
    "learner/samples": _m("samples", "Samples of the step, both roles."),
    "learner/samples_zero_advantage": _m(
        "samples", "Samples whose advantage is 0: nothing to learn."
    ),
    "learner/nonfinite": _m("updates", "Updates set aside so far because they were not finite."),
    "learner/update_s": _m("s", "Forward, backward and optimiser."),
    "learner/publish_s": _m("s", "Writing the weights for the generators."),
    "learner/publish_bytes": _m(
        "bytes", "Size of what was written for the generators: all weights, or the adapter alone."
    ),
    "learner/checkpoint_s": _m("s", "Writing the checkpoint durably."),
    "learner/idle_share": _m("share", "Part of the step the learner waited for a batch."),
    "learner/step_s": _m("s", "From one finished step to the next."),
    # Generators, over the time since the step before.
    "generator/tokens_per_s": _m("tokens/s", "Sampled tokens per second, all generators."),
    "generator/idle_share": _m("share", "Part of the time the engines had nothing to decode."),
    "generator/attest_s": _m(
        "s", "Time to prove the newest weights after their swap; tokens are decoded meanwhile."
    ),
    "generator/probe_gap": _m(
        "nats", "Largest difference of a log-probability between learner and generator."
    ),
    "generator/not_attested": _m(
        "loads", "Loads whose weights did not agree with the learner's numbers so far."
    ),
    "generator/swap_pause_s": _m("s", "Longest pause of decoding at a weight swap."),
    "generator/active": _m("requests", "Requests being decoded, all generators."),
    "generator/engine_deaths": _m("deaths", "Deaths of vLLM's processes that it came back from."),
    "generator/failed_updates": _m("tries", "Weight updates that failed inside vLLM, tried again."),
    "generator/resubmitted_requests": _m(
        "requests", "Requests that went on in a new vLLM, from the tokens they had."
    ),
    "rate/episodes_per_hour": _m("episodes/h", "Episodes committed to the ledger per hour."),
    "rate/designs_per_hour": _m("designs/h", "Designs committed to the ledger per hour."),
    # Jail.
    "jail/p50_s": _m("s", "Median wall time of a jailed call, seen from outside."),
    "jail/p99_s": _m("s", "99th percentile of the wall time of a jailed call."),
    "jail/outcome/<outcome>": _m("calls", "Jailed calls with this outcome since the step before."),
    "jail/event/<kind>": _m(
        "events",
        "Events of the jail since the step before, by kind: ends of sessions by outcome, busy, "
        "start_failed, template_died, template_restarted, template_rotated, broker_died, "
        "broker_restarted, stray_ended.",
    ),
    "jail/code_hit_share": _m(
        "share", "Loads since the step before that found their source compiled."
    ),
    "jail/lost_spares": _m(
        "workers", "Workers that died before they were used, since the run was last started."
    ),
    "jail/template_restarts": _m(
        "templates", "Templates started because one died, since the run was last started."
    ),
    "jail/template_rotations": _m(
        "templates", "Templates replaced for their age, since the run was last started."
    ),
    "jail/broker_restarts": _m(
        "brokers", "Brokers started because one died, since the run was last started."
    ),
    "jail/events_dropped": _m(
        "events", "Events that came faster than they were read, since the run was last started."
    ),
    # Queues and the link.
    "queue/ready_agent": _m("groups", "Agent groups complete and waiting for a batch."),
    "queue/ready_designer": _m("groups", "Designer groups complete and waiting for a batch."),
    "queue/outstanding_agent": _m("groups", "Agent groups being played."),
    "queue/outstanding_designer": _m(
        "groups", "Designer groups whose designs or plays are not in."
    ),
    "queue/oldest_age_s": _m("s", "Age of the oldest outstanding group."),
    "link/resent": _m(
        "messages",
        "Messages sent again since the start: lost ones, and ones that are worked on for long.",
    ),
    "link/duplicates": _m("messages", "Messages received twice and dropped since the start."),
    "link/lost": _m("messages", "Messages given up without an acknowledgement; must be 0."),
    "link/refused": _m("messages", "Frames that were no message or not allowed, since the start."),
    "link/refused/<end>/<reason>": _m(
        "messages", "Of these, at this end and for this reason ([reasons](link.md)); absent at 0."
    ),
    "link/failed_handshakes": _m("connections", "Connections refused for their keys or protocol."),
    "link/unreachable": _m("sendings", "Sendings that found no route or a full pipe; tried again."),
    "link/connections_ended": _m("connections", "Connections that ended, for whatever reason."),
    "link/unacknowledged": _m("messages", "Messages sent and not acknowledged yet, both ways."),
    "link/oldest_unacknowledged_s": _m("s", "Age of the oldest message not acknowledged yet."),
    "link/credit": _m("tasks", "Tasks that all generators together may hold."),
    "link/credit_used": _m("tasks", "Tasks that generators hold."),
    "link/busy_s": _m("s", "CPU time of all parts together in the link since they started."),
    "link/busy_share": _m("share", "The same since the step before, over the time of the step."),
    # Held-out evaluation.
    "eval/level/<level>/accuracy": _m(
        "share", "Held-out success at this level, on a stated version."
    ),
    "eval/accuracy": _m("share", "Held-out success over all levels."),
    "eval/held_s": _m("s", "Time that newer weights waited for evaluations so far (eval.hold_s)."),
    "eval/family/<family>/accuracy": _m(
        "share", "Held-out success at programs with this label, on a stated version."
    ),
    # Guards: whether self-play goes wrong, over the newest guards.window valid designs.
    "guards/effective_skeletons": _m(
        "skeletons",
        "exp of the entropy of their skeletons: so many equally frequent ones have the same.",
    ),
    "guards/largest_skeleton_share": _m("share", "Share of the most frequent skeleton among them."),
    "guards/largest_family_share": _m(
        "share", "Share of the most frequent family among them; absent without such a label."
    ),
    "guards/leak_share": _m(
        "share",
        "Mean share of seeds on which the hint alone is the answer, over them; absent when "
        "regret.leak_seeds is 0.",
    ),
    "guards/forgetting": _m(
        "share",
        "How far held-out success is below the first or the best evaluation, whichever is further; "
        "negative when it is above both.",
    ),
    # How the agent acts over several turns; absent where agent.max_turns is 1 (docs/guards.md).
    "behaviour/tokens_before_action": _m(
        "tokens",
        "Mean tokens sampled until the first action was sent, its own included, per unhinted "
        "episode.",
    ),
    "behaviour/turns": _m("turns", "Mean actions of an unhinted episode with at least one."),
    "behaviour/feedback_used_share": _m(
        "share",
        "Actions after an answer that differ from the one answered, repeat none that was rejected "
        "and keep every numeric bound that answers gave.",
    ),
    "behaviour/recovery_share": _m(
        "share", "Rejected actions that another one follows, where that one is not rejected."
    ),
    "behaviour/return_after_rejection": _m(
        "return", "Mean return of episodes with a rejected action that another one follows."
    ),
    # Episodes and what was thrown away.
    "agent/tokens_per_episode": _m(
        "tokens", "Mean sampled tokens of an unhinted training episode."
    ),
    "episodes/missing": _m(
        "episodes", "Episodes of the step without a return, with a reason on record."
    ),
    "tokens/discarded_for_age": _m(
        "tokens", "Finished tokens thrown away for age so far; must be 0."
    ),
    "tokens/cut_at_deadline": _m("tokens", "Tokens of tasks cut at async.straggler_s so far."),
    **{tag: _m(*about) for tag, about in LIFE_METRICS.items()},
}
"""Every scalar tag, in the order of the page."""

TEXTS: dict[str, Metric] = {
    "environments/<slot>": _m(
        "text", "Newest environments: hint, both transcripts, source; slots 0 to 7."
    ),
    "run/config": Metric("text", LEARNER_STEP, "Resolved configuration of the run."),
    "run/jail": Metric(
        "text", LEARNER_STEP, "Level of the jail that held, per generator, and layers it lacked."
    ),
    "run/in_flight": Metric(
        "text", LEARNER_STEP, "Why the controller lets so much be in flight, when it changes that."
    ),
    "run/alerts": Metric(
        "text", LEARNER_STEP, "Alerts since the step before: what happened and what to do."
    ),
}
"""Text tags."""

HISTOGRAMS: dict[str, Metric] = {
    "hist/regret": _m("return", "Regret of the step's environments."),
    "hist/episode_return": _m("return", "Returns of the step's unhinted training episodes."),
    "hist/staleness": _m("learner steps", "Age of the step's samples."),
}
"""Histogram tags."""

_PLACEHOLDER = re.compile(r"<[a-z]+>")
_PART = r"[A-Za-z0-9_.+-]{1,64}"
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]+")


@lru_cache(maxsize=4096)
def find(tag: str) -> Metric | None:
    """The entry a tag belongs to (scalars, texts, histograms), or None when there is none."""
    for catalog in (METRICS, TEXTS, HISTOGRAMS):
        if tag in catalog:
            return catalog[tag]
    for catalog in (METRICS, TEXTS, HISTOGRAMS):
        for pattern, metric in catalog.items():
            if "<" in pattern and re.fullmatch(_PLACEHOLDER.sub(_PART, pattern), tag):
                return metric
    return None


def part(value: str) -> str:
    """A label value as one part of a tag: other characters become "_", at most 64 characters."""
    return _UNSAFE.sub("_", value)[:64] or "_"


_PREFACE = """\
Every number that a run writes to TensorBoard. This page is made from the catalog
(`python -m spade_async.telemetry.metrics > docs/metrics.md`); a test holds the two equal, and the
writer refuses a tag that is not here. The x-axis is always the learner step, across stops and
resumes. A number that does not exist in a step is not written: there are gaps, never zeros in their
place. `<...>` stands for one part of a tag.
"""


def page() -> str:
    """`docs/metrics.md`, whole."""
    lines = ["# Metrics", "", *_PREFACE.splitlines()]
    for title, catalog in (("Scalars", METRICS), ("Histograms", HISTOGRAMS), ("Texts", TEXTS)):
        lines += [
            "",
            f"## {title}",
            "",
            "| tag | unit | x-axis | meaning |",
            "| --- | --- | --- | --- |",
        ]
        lines += [f"| `{tag}` | {m.unit} | {m.axis} | {m.text} |" for tag, m in catalog.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(page())
