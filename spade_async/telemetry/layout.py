"""The ready custom-scalars layout: groups of charts a person wants to see together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorboard.plugins.custom_scalar import layout_pb2

GROUPS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "Is self-play healthy": {
        "regret": ("regret/mean",),
        "solve rate: with hint, without": ("solve/with_hint", "solve/no_hint"),
        "frontier, mastered, out of reach": (
            "regret/frontier_share",
            "regret/mastered_share",
            "regret/out_of_reach_share",
        ),
        "held-out accuracy by level": ("eval/level/.*",),
        "regret paid (after leaks)": ("regret/paid_mean",),
        "hint leaks": ("designer/leak_share",),
        "skeletons per batch": ("designer/skeletons_per_batch",),
        "validity (last 200 designs)": ("designer/validity_window",),
    },
    "What is played": {
        "levels": ("mix/level/.*",),
        "mean of numeric labels": ("labels/mean/.*",),
        "designer reward": ("designer/reward_mean",),
        "validity in the step": ("designer/validity",),
        "rejected by stage": ("validity/stage/.*",),
        "families": ("mix/family/.*",),
        "held-out accuracy, all levels": ("eval/accuracy",),
        "refused: by quota, as near copies": (
            "designer/quota_refused",
            "designer/copies_refused",
        ),
    },
    "Diversity": {
        "skeleton entropy: last designs, run": (
            "diversity/skeleton_entropy",
            "diversity/run_skeleton_entropy",
        ),
        "distinct skeletons, last designs": ("diversity/skeletons",),
        "Vendi score: last designs, run": ("diversity/vendi", "diversity/run_vendi"),
        "distinct skeletons, run": ("diversity/run_skeletons",),
    },
    "Does self-play go wrong": {
        "effective skeletons": ("guards/effective_skeletons",),
        "largest share: family, skeleton": (
            "guards/largest_family_share",
            "guards/largest_skeleton_share",
        ),
        "hint alone is the answer": ("guards/leak_share",),
        "fall of held-out success": ("guards/forgetting",),
    },
    "How the agent acts": {
        "tokens before the first action": ("behaviour/tokens_before_action",),
        "feedback used": ("behaviour/feedback_used_share",),
        "after a rejection: next action taken, return": (
            "behaviour/recovery_share",
            "behaviour/return_after_rejection",
        ),
        "turns": ("behaviour/turns",),
    },
    "What designs are paid": {
        "pay by skill": ("reward/skill/.*/paid",),
        "parts of the value": ("reward/component/.*",),
        "designs held, their steps": ("reward/held", "reward/held_steps"),
        "offsets played per design": ("reward/offsets",),
    },
    "Off-policy": {
        "agent age: largest, mean": ("staleness/agent_max", "staleness/agent_mean"),
        "designer age: largest, mean": ("staleness/designer_max", "staleness/designer_mean"),
        "importance ratio: mean by role": ("learner/ratio_mean_.*",),
        "importance ratio: largest": ("learner/ratio_max",),
        "clip share": ("learner/clip_share",),
        "effective sample size": ("learner/ess",),
        "KL to the generator": ("learner/kl_generator",),
        "KL to the start": ("learner/kl_to_start",),
        "KL to the generator by age": ("learner/kl_age/.*",),
        "weight: before, after clamping": ("learner/weight_mean_raw", "learner/weight_mean"),
        "masked: negative, positive advantage": (
            "learner/masked_share_negative",
            "learner/masked_share_positive",
        ),
        "share: truncated mass, gradient of old samples": (
            "learner/truncated_mass",
            "learner/stale_gradient_share",
        ),
    },
    "Learner": {
        "loss": ("learner/loss",),
        "gradient norm": ("learner/grad_norm",),
        "entropy: agent, designer": ("learner/entropy_agent", "learner/entropy_designer"),
        "samples: all, zero advantage": ("learner/samples", "learner/samples_zero_advantage"),
        "seconds: step, update": ("learner/step_s", "learner/update_s"),
        "seconds: checkpoint, publish": ("learner/checkpoint_s", "learner/publish_s"),
        "trained tokens per step": ("learner/tokens",),
        "updates set aside": ("learner/nonfinite",),
    },
    "Speed": {
        "episodes per hour": ("rate/episodes_per_hour",),
        "designs per hour": ("rate/designs_per_hour",),
        "generator tokens/s": ("generator/tokens_per_s",),
        "learner tokens/s": ("learner/tokens_per_s",),
        "generator idle share": ("generator/idle_share",),
        "learner idle share": ("learner/idle_share",),
        "jail seconds: p99, p50": ("jail/p99_s", "jail/p50_s"),
        "jail outcomes": ("jail/outcome/.*",),
        "agent groups: outstanding, ready": ("queue/outstanding_agent", "queue/ready_agent"),
        "designer groups: outstanding, ready": (
            "queue/outstanding_designer",
            "queue/ready_designer",
        ),
        "oldest group (s)": ("queue/oldest_age_s",),
        "swap pause (s)": ("generator/swap_pause_s",),
    },
    "Deaths": {
        "deaths by part and cause": ("lives/deaths/.*",),
        "restarts, hangs": ("lives/restarts", "lives/hangs"),
        "steps undone, tasks asked for again": ("lives/steps_undone", "lives/tasks_again"),
        "seconds: until named, until back": ("lives/named_s", "lives/back_s"),
    },
    "Jail": {
        "restarts: broker, templates": ("jail/broker_restarts", "jail/template_restarts"),
        "events": ("jail/event/.*",),
        "lost spares, rotations": ("jail/lost_spares", "jail/template_rotations"),
        "loads that found their source compiled": ("jail/code_hit_share",),
    },
}
"""Category -> chart -> regular expressions of tags.

TensorBoard gives all lines of one run the same colour, so a chart holds lines that keep apart (or
one). A category holds a multiple of four charts, a full row on a wide screen, and twelve at most,
one page.
"""


def layout() -> layout_pb2.Layout:
    """`GROUPS` as the message of the custom-scalars dashboard."""
    return layout_pb2.Layout(
        category=[
            layout_pb2.Category(
                title=category,
                chart=[
                    layout_pb2.Chart(
                        title=title,
                        multiline=layout_pb2.MultilineChartContent(
                            tag=[f"^{tag}$" for tag in tags]
                        ),
                    )
                    for title, tags in charts.items()
                ],
            )
            for category, charts in GROUPS.items()
        ]
    )
