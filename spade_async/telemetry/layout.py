"""The ready custom-scalars layout: groups of charts a person wants to see together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorboard.plugins.custom_scalar import layout_pb2

GROUPS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "Is self-play healthy": {
        "regret": ("regret/mean", "regret/paid_mean"),
        "regret classes": (
            "regret/frontier_share",
            "regret/mastered_share",
            "regret/out_of_reach_share",
        ),
        "solve rate": ("solve/no_hint", "solve/with_hint"),
        "validity": ("designer/validity", "designer/validity_window"),
        "rejected by stage": ("validity/stage/.*",),
        "skeletons per batch": ("designer/skeletons_per_batch",),
        "hint leaks": ("designer/leak_share",),
    },
    "What is played": {
        "families": ("mix/family/.*",),
        "levels": ("mix/level/.*",),
        "mean of numeric labels": ("labels/mean/.*",),
        "held out": ("eval/accuracy", "eval/level/.*"),
    },
    "Off-policy": {
        "staleness": (
            "staleness/agent_mean",
            "staleness/agent_max",
            "staleness/designer_mean",
            "staleness/designer_max",
        ),
        "importance ratio": ("learner/ratio_mean", "learner/ratio_max", "learner/ratio_mean_.*"),
        "clip share and ESS": ("learner/clip_share", "learner/ess"),
        "KL": ("learner/kl_generator", "learner/kl_to_start"),
    },
    "Learner": {
        "loss": ("learner/loss",),
        "gradient norm": ("learner/grad_norm",),
        "entropy": ("learner/entropy_agent", "learner/entropy_designer"),
        "seconds": (
            "learner/step_s",
            "learner/update_s",
            "learner/publish_s",
            "learner/checkpoint_s",
        ),
        "samples": ("learner/samples", "learner/samples_zero_advantage"),
    },
    "Speed": {
        "episodes per hour": ("rate/episodes_per_hour", "rate/designs_per_hour"),
        "tokens per second": ("generator/tokens_per_s", "learner/tokens_per_s"),
        "idle share": ("generator/idle_share", "learner/idle_share"),
        "jail latency": ("jail/p50_s", "jail/p99_s"),
        "jail outcomes": ("jail/outcome/.*",),
        "queues": ("queue/ready_.*", "queue/outstanding_.*"),
        "queue age": ("queue/oldest_age_s",),
    },
}
"""Category -> chart -> regular expressions of tags."""


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
