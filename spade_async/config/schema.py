"""The configuration of a run: frozen models, unknown keys fail, ranges on fields.

Imports nothing heavy, so that ``--help`` and the checks are instant. A value comes from one place:
a TOML file (with ``extends``), then dotted ``--set`` overrides (see `load.py`).
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from spade_async.config import link_address
from spade_async.config.agent import AgentConfig
from spade_async.config.clashes import betas_problem, skill_window_clash, staleness_clash
from spade_async.config.cluster import ClusterConfig
from spade_async.config.contract import ContractConfig
from spade_async.config.correction import CorrectionConfig, correction_problem
from spade_async.config.critic import CriticConfig, critic_problem
from spade_async.config.designer import DesignerConfig
from spade_async.config.grounding import GroundingConfig
from spade_async.config.guards import GuardsConfig
from spade_async.config.held_model import HeldModel, held_problem
from spade_async.config.regret import RegretConfig
from spade_async.config.reward import Baseline, baseline_clash, reward_problem
from spade_async.config.run import RunConfig
from spade_async.config.scripted import ScriptedConfig, thinking_clash, unused_clash
from spade_async.config.section import Section
from spade_async.config.supervisor import SupervisorConfig
from spade_async.config.vllm import VllmConfig, vllm_problem

SCRIPTED_DOMAIN = "spade_async.engine.scripted_domain"
"""Domain of a run whose engine is scripted."""


class DomainConfig(Section):
    """What is particular to one family of environments."""

    hook: str = "spade_async.designer.games"
    """Importable module that implements `spade_async.domain.Domain` functions."""


class ModelConfig(Section):
    """The policy that plays both roles."""

    path: str = "nano"
    """A Hugging Face model folder, a hub's "owner/name" or "owner/name@revision", or "nano": a CPU
    model made by its warm start."""
    max_context_tokens: int = Field(384, ge=16, le=1_048_576)
    """Longest sequence (prompt and everything after it) that is sampled or trained."""
    warm_start_seed: int = Field(1, ge=0)
    """Seed of the nano warm start; part of the cache key."""


class AsyncConfig(Section):
    """How far generation may run ahead of learning."""

    staleness: int | None = Field(None, ge=0, le=1000)
    """Shorthand for both bounds: agent gets it, designer gets twice it. 0 is synchronous.
    Beside it a bound must agree or stand at its default."""
    agent_bound: int = Field(4, ge=0, le=1000)
    """Oldest trained agent sample, in learner steps."""
    designer_bound: int = Field(8, ge=0, le=1000)
    """Oldest trained designer sample, in learner steps (its episodes must be in as well)."""
    straggler_s: float = Field(60.0, gt=0.0, le=86_400.0)
    """The longest that the learner waits for named groups without any result of theirs; what is
    missing of the oldest is then cut by name. More than the longest episode that is to be trained.
    """

    in_flight: Literal["swap", "finish"] = "swap"
    """What new weights do to what is being sampled: go under it, so that a sample's tokens are of
    several versions, or leave it on the weights it began with. "finish" keeps two weight sets in an
    engine and takes in a third when the last sample of the oldest has ended."""
    controller: bool = True
    """Hold fewer groups and sequences than the bounds allow while the learner does not wait for
    more: fresher samples at the same speed. False fills the bounds."""
    fill: bool = False
    """The learner waits at every step until no more fits the bounds, and the controller holds
    nothing back: samples are as old as the bounds let them be. For measuring what age costs."""

    @property
    def bounds(self) -> tuple[int, int]:
        """(agent, designer) bounds with the shorthand applied."""
        if self.staleness is None:
            return self.agent_bound, self.designer_bound
        return self.staleness, 2 * self.staleness


class EngineConfig(Section):
    """Token generation."""

    kind: Literal["builtin", "vllm", "scripted"] = "builtin"
    """"builtin" is for small models on a CPU, "vllm" for real ones (docs/vllm.md). "scripted" has
    no model: see the section [scripted]."""
    slots: int = Field(64, ge=1, le=4096)
    """Requests decoded together."""
    prefill_tokens: int = Field(4096, ge=16, le=1_048_576)
    """Most prompt tokens read in one pass."""
    on_swap: Literal["recompute", "keep"] = "recompute"
    """What happens to the KV of running requests at a weight swap. "keep" makes log-probabilities
    differ from a full pass under the stated version."""
    threads: int = Field(1, ge=1, le=256)
    """Threads that the model computes with in a generator."""
    vllm: VllmConfig = VllmConfig()
    """Of engine.kind="vllm"; see docs/vllm.md."""


class GeneratorConfig(Section):
    """Generator processes."""

    count: int = Field(1, ge=1, le=64)
    """How many are started."""
    concurrent_tasks: int = Field(96, ge=1, le=4096)
    """Tasks that one generator works on at once; the credit it gives to the coordinator."""


class SandboxConfig(Section):
    """The jail for generated code."""

    backend: Literal["native", "nsjail", "subprocess"] = "native"
    """What confines the code; see docs/backends.md."""
    allow_unsafe: bool = False
    """Has to be spelled out for `subprocess`, which does not confine."""
    level: Literal["auto", "strict", "rootless", "container", "minimal"] = "auto"
    """Layers that must hold; see docs/levels.md. "auto" takes what this machine gives. What holds
    is written to the run folder and to TensorBoard."""
    profiles: tuple[str, ...] = Field(("compute",), min_length=1, max_length=32)
    """What the environments find, one template each: names of built-in profiles, or
    "path/to/file.toml:name" seen from where the command runs. The run plays in the first."""
    workers: int = Field(32, ge=1, le=4096)
    """Most live sessions at once, per generator."""
    spares: int = Field(8, ge=0, le=1024)
    """Workers kept ready beyond the live ones."""
    queue: int = Field(4096, ge=1, le=1_000_000)
    """Most requests for a session that wait."""
    wall_s_per_call: float = Field(2.0, gt=0.0, le=3600.0)
    """Wall time of one call into an environment, after which it is ended."""
    cpu_s_per_call: float = Field(1.0, gt=0.0, le=3600.0)
    """CPU time of one call, after which it is ended."""
    memory_bytes: int = Field(256 << 20, ge=32 << 20, le=1 << 40)
    """Memory of one worker."""
    reply_bytes: int = Field(64 << 10, ge=256, le=16 << 20)
    """Longest reply of an environment."""
    code_cache_bytes: int = Field(64 << 20, ge=0, le=1 << 36)
    """Sources and their compiled form that a generator keeps; 0 compiles at every load."""
    rotate_after: int = Field(0, ge=0, le=1 << 40)
    """Workers after which a template is replaced by a fresh one; 0 is never."""
    rotate_after_s: float = Field(0.0, ge=0.0, le=1e9)
    """Seconds after which a template is replaced by a fresh one; 0 is never."""


class LearnerConfig(HeldModel):
    """The GRPO update."""

    kind: Literal["torch", "scripted"] = "torch"
    """"scripted" trains nothing: it stands in for a learner in tests and benches."""
    lr: float = Field(1e-4, ge=0.0, le=1.0)
    """Learning rate of AdamW."""
    warmup_steps: int = Field(5, ge=0, le=1_000_000)
    """Steps in which the learning rate rises from near 0."""
    weight_decay: float = Field(0.0, ge=0.0, le=1.0)
    """Of AdamW."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Of AdamW."""
    grad_clip: float = Field(1.0, gt=0.0, le=1e6)
    """Largest norm of the gradient."""
    micro_batch_tokens: int = Field(8192, ge=16, le=1 << 30)
    """Most tokens (padding included) in one forward pass."""
    clip_low: float = Field(0.2, ge=0.0, le=1.0)
    """The surrogate clips ratios below 1 - clip_low."""
    clip_high: float = Field(0.2, ge=0.0, le=10.0)
    """And above 1 + clip_high."""
    correction: CorrectionConfig = CorrectionConfig()
    """What is done about the age of samples."""
    critic: CriticConfig = CriticConfig()
    """A value head in the place of the group's mean."""
    passes: int = Field(1, ge=1, le=64)
    """Optimiser steps per batch, each over all of it."""
    entropy_weight: float = Field(0.0, ge=0.0, le=10.0)
    """Weight of the policy's entropy, a bonus on every trained token (PPO's third term)."""
    kl_to_start: float = Field(0.0, ge=0.0, le=10.0)
    """Weight of KL(policy || start) on the agent's tokens; 0 is none."""
    normalise_std: bool = False
    """Shorthand for learner.advantage and designer.reward.baseline: true is "z_score" for both.
    Beside it they must agree or not be set."""
    advantage: Baseline | None = None
    """What an episode's return is compared with: "dr_grpo" its group's mean (when not set),
    "z_score" also divided by the group's deviation, "leave_one_out" the mean of the others of its
    group, "skill_mean" the mean of its skill in the step. See docs/rewards.md."""
    replay_experts: bool = True
    """With a mixture of experts: each token goes through the experts that the engine chose for it,
    where the engine says (the built-in one; vLLM on a GPU). false: through the learner's choice."""
    zero_variance: Literal["keep", "skip"] = "keep"
    """Groups whose values are all equal: in the step with advantage 0 (they cost no pass unless
    kl_to_start is set, and count as tokens of their role), or left out of it."""
    designer_weight: float = Field(1.0, ge=0.0, le=1000.0)
    """Weight of the designer's loss against the agent's: the one knob between the two roles."""
    max_nonfinite: int = Field(3, ge=1, le=1_000_000)
    """So many updates in a row that are not finite end the run, with a checkpoint."""
    threads: int = Field(1, ge=1, le=256)
    """Threads of torch in the learner."""


class CheckpointConfig(Section):
    """What is kept on disk."""

    every: int = Field(1, ge=1, le=100_000)
    """Learner steps between checkpoints."""
    keep: int = Field(3, ge=2, le=10_000)
    """Newest checkpoints that stay."""


class WeightsConfig(Section):
    """How weights reach the generators."""

    location: Literal["shared_memory", "run_folder"] = "shared_memory"
    """Where weight files lie; "run_folder" when generators run on other machines."""
    keep: int = Field(3, ge=2, le=100)
    """Newest weight sets that stay."""
    attest: bool = True
    """After each swap a generator proves its weights against the learner's own numbers."""


class TrainConfig(Section):
    """Length of the run."""

    steps: int = Field(150, ge=0, le=100_000_000)
    """Learner steps at which the run ends."""


class EvalConfig(Section):
    """Held-out evaluation."""

    every: int = Field(25, ge=1, le=1_000_000)
    """Learner steps between evaluations; step 0 and the last step are always scored."""
    instances_per_level: int = Field(128, ge=1, le=100_000)
    """Held-out instances of each level, the same ones every time."""
    temperature: float = Field(1.0, ge=0.0, le=4.0)
    """0 is greedy."""
    hold_s: float | None = Field(None, gt=0.0, le=864_000.0)
    """Longest that an evaluation holds newer weights back; what of it is missing then is cut."""


class LinkConfig(Section):
    """ZeroMQ link between the processes of one run; see docs/link.md."""

    endpoint: str = Field("ipc", max_length=100)
    """Where the parts meet: "ipc" is a private local socket; tcp://ADDRESS:PORT for other machines,
    which needs `keys` unless the address is loopback."""
    keys: str | None = Field(None, min_length=1, max_length=4096)
    """Folder of the CURVE keys that `spade-async keys DIR` made. The coordinator's machine needs
    server.key and client.key there, others client.key only."""
    max_message_bytes: int = Field(64 << 20, ge=1 << 16, le=1 << 34)
    """Largest frame; a larger one is refused."""
    resend_s: float = Field(5.0, gt=0.0, le=3600.0)
    """An unacknowledged message is sent again after this long."""

    @model_validator(mode="after")
    def _endpoint_and_keys(self) -> Self:
        problem = link_address.problem(self.endpoint, self.keys)
        if problem is not None:
            raise ValueError(problem)
        return self


class Config(Section):
    """A whole run. Every key is documented where it stands."""

    run: RunConfig = RunConfig()
    domain: DomainConfig = DomainConfig()
    model: ModelConfig = ModelConfig()
    grounding: GroundingConfig = GroundingConfig()
    designer: DesignerConfig = DesignerConfig()
    contract: ContractConfig = ContractConfig()
    agent: AgentConfig = AgentConfig()
    regret: RegretConfig = RegretConfig()
    guards: GuardsConfig = GuardsConfig()
    # "async" is a keyword of Python: the field has an alias.
    async_: AsyncConfig = Field(AsyncConfig(), alias="async")
    engine: EngineConfig = EngineConfig()
    generator: GeneratorConfig = GeneratorConfig()
    cluster: ClusterConfig = ClusterConfig()
    sandbox: SandboxConfig = SandboxConfig()
    learner: LearnerConfig = LearnerConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    weights: WeightsConfig = WeightsConfig()
    train: TrainConfig = TrainConfig()
    eval: EvalConfig = EvalConfig()
    link: LinkConfig = LinkConfig()
    supervisor: SupervisorConfig = SupervisorConfig()
    scripted: ScriptedConfig = ScriptedConfig()

    @property
    def is_scripted(self) -> bool:
        """Whether nothing is sampled from a model and nothing is trained."""
        return self.engine.kind == "scripted"

    def _temperatures(self) -> dict[str, float]:
        return {
            "agent.temperature": self.agent.temperature,
            "designer.temperature": self.designer.temperature,
            "designer.verdict_temperature": self.designer.verdict_temperature,
            "eval.temperature": self.eval.temperature,
        }

    @model_validator(mode="after")
    def _cross_field(self) -> Self:
        pool = round(self.agent.groups_per_step * self.agent.pool_share)
        agent_bound, _ = self.async_.bounds
        places = (agent_bound + 1) * (self.agent.groups_per_step - pool)
        if places < self.designer.group_size:
            raise ValueError(
                f"agent.groups_per_step={self.agent.groups_per_step} leaves {places} places for "
                f"designed environments, but one designer group needs "
                f"designer.group_size={self.designer.group_size}: raise agent.groups_per_step, "
                f"lower designer.group_size or agent.pool_share={self.agent.pool_share} (which "
                f"takes {pool} places)"
            )
        clash = (
            staleness_clash(self.async_)
            or betas_problem(self.learner.betas)
            or skill_window_clash(self.designer.skills_per_window, self.designer.skill_window)
        )
        if clash is not None:
            raise ValueError(clash)
        longest = max(self.designer.max_new_tokens, self.agent.max_new_tokens_per_turn)
        if longest >= self.model.max_context_tokens:
            raise ValueError(
                f"max_new_tokens={longest} does not fit model.max_context_tokens="
                f"{self.model.max_context_tokens}: raise the context or lower the token limit"
            )
        if self.sandbox.backend == "subprocess" and not self.sandbox.allow_unsafe:
            raise ValueError(
                'sandbox.backend="subprocess" runs model-written code without a jail: it can read, '
                'delete and send whatever this user can. Use "native" or "nsjail", or spell out '
                "sandbox.allow_unsafe=true"
            )
        problem = _scripted_problem(self) or vllm_problem(
            self.engine.kind, self.engine.vllm, self.async_.in_flight, self._temperatures()
        )
        if problem is not None:
            raise ValueError(problem)
        if self.regret.out_of_reach_at >= self.regret.mastered_at:
            raise ValueError(
                f"regret.out_of_reach_at={self.regret.out_of_reach_at} must be below "
                f"regret.mastered_at={self.regret.mastered_at}"
            )
        learner, reward = self.learner, self.designer.reward
        problem = reward_problem(reward, self.async_.bounds[1], self.run.compat) or baseline_clash(
            learner.normalise_std, learner.advantage, reward.baseline
        )
        if problem is not None:
            raise ValueError(problem)
        usual = LearnerConfig()
        clips = {
            name: getattr(learner, name)
            for name in ("clip_low", "clip_high")
            if getattr(learner, name) != getattr(usual, name)
        }
        problem = (
            correction_problem(learner.correction, learner.passes, clips)
            or critic_problem(learner.critic, learner.kind, learner.normalise_std)
            or held_problem(learner, learner.critic.enabled, self.engine.kind)
        )
        if problem is not None:
            raise ValueError(problem)
        return self


def _scripted_problem(config: Config) -> str | None:
    """What is wrong with the use of the scripted parts, or None."""
    engine, learner = config.engine.kind, config.learner.kind
    if (engine == "scripted") != (learner == "scripted"):
        return (
            f'engine.kind="{engine}" and learner.kind="{learner}": a scripted engine has no model '
            "to train, a scripted learner makes no weights to sample from; set both, or neither"
        )
    if engine == "scripted":
        if config.domain.hook != SCRIPTED_DOMAIN:
            return (
                f'engine.kind="scripted" says only programs of its own, domain.hook='
                f'"{config.domain.hook}" does not know them: set domain.hook="{SCRIPTED_DOMAIN}"'
            )
        clash = thinking_clash(config.designer.thinking, config.agent.thinking)
        if clash is not None:
            return clash
        if config.scripted.turns > config.agent.max_turns:
            return (
                f"scripted.turns={config.scripted.turns} is more than agent.max_turns="
                f"{config.agent.max_turns}: no design would be valid"
            )
        return None
    return unused_clash(config.scripted, engine)
