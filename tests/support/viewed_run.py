"""A run folder with a ledger of known content, written by the ledger's own writer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from spade_async.config.load import dump_resolved
from spade_async.config.schema import Config
from spade_async.environment.contract import environment_id, skeleton
from spade_async.ledger import BatchSample, Ledger
from spade_async.types import (
    NO_VERSION,
    Environment,
    PolicyVersion,
    RegretClass,
    RegretEstimate,
    TokenTrace,
)
from tests.support.ledger_rows import group, report, sample

PROGRAM = """\
class EchoEnv:
    def reset(self, seed=None):
        self.n = int(seed) % 10
        return "say NUMBER or " + str(self.n), {}

    def step(self, action):
        return "done", float(action.strip() == str(self.n)), True, False, {}

    def hint(self):
        return str(self.n)
"""
SEEDS = (11, 22, 33, 44)
BOTH_LOSE, HINT_HELPS, BOTH_WIN = (0.0, 0.0), (0.0, 1.0), (1.0, 1.0)
"""(return without hint, return with it)."""


def program(number: int, extra: str = "") -> str:
    return PROGRAM.replace("NUMBER", str(number)) + extra


def trace(versions: tuple[int, ...] = (0, 1)) -> TokenTrace:
    """Three prompt tokens, then two sampled ones by each of these steps."""
    sampled = [PolicyVersion(0, step).packed for step in versions for _ in range(2)]
    length = 3 + len(sampled)
    return TokenTrace(
        token_ids=np.arange(length, dtype=np.int32),
        loss_mask=np.array([0] * 3 + [1] * len(sampled), np.uint8),
        generator_logprobs=np.array([0.0] * 3 + [-0.5] * len(sampled), np.float32),
        versions=np.array([NO_VERSION] * 3 + sampled, np.int64),
    )


def estimate(pairs: list[tuple[float, float]], kind: RegretClass) -> RegretEstimate:
    """By the definition: mean difference and its standard error (ddof 1)."""
    differences = np.array([hinted - plain for plain, hinted in pairs])
    return RegretEstimate(
        regret=float(differences.mean()),
        standard_error=float(differences.std(ddof=1) / np.sqrt(len(pairs))),
        paid_regret=float(differences.mean()),
        mean_with_hint=float(np.mean([hinted for _, hinted in pairs])),
        mean_no_hint=float(np.mean([plain for plain, _ in pairs])),
        num_pairs=len(pairs),
        regret_class=kind,
    )


class RunMaker:
    """Writes environments, plays and steps; `close` ends the writer."""

    def __init__(self, folder: Path, config: Config | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        dump_resolved(config or Config(), folder)
        self.ledger = Ledger.open(folder / "ledger.sqlite", create=True, config_digest="c")
        self.number = 0
        self.steps = 0
        with self.ledger.transaction():
            self.ledger.add_version(0, PolicyVersion(0, 0), "d", "shm", None, 0.0)

    def environment(
        self,
        pairs: list[tuple[float, float]],
        kind: RegretClass = RegretClass.FRONTIER,
        *,
        source: str | None = None,
        words_of: tuple[int, ...] = (0,),
        leak_share: float = 0.0,
        hint: str | None = None,
        document: str = "a document",
        action: str = "7",
    ) -> str:
        """One design with its plays in both arms; returns the environment's id."""
        number = self.number
        self.number += 1
        text = program(number) if source is None else source
        made = Environment(
            environment_id=environment_id(text),
            source=text,
            hint=hint,
            leak_share=leak_share,
            labels=(("family", "echo"),),
            skeleton=skeleton(text),
        )
        design, sample_id = f"d-{number:07d}", f"d-{number:07d}.0"
        play = f"{sample_id}.play"
        ledger = self.ledger
        with ledger.transaction():
            ledger.add_group(
                group(
                    design, "designer", kind="design", skill="Arithmetic", members=1,
                    document_id=f"doc-{number}", document=document,
                    exemplars_json=json.dumps([{"source": program(99)}]),
                )
            )  # fmt: skip
            ledger.add_sample(
                sample(
                    sample_id, design, "designer", episode_return=None, reward=0.25,
                    environment_id=made.environment_id, num_tokens=7, num_trained_tokens=4,
                ),
                trace(),
            )  # fmt: skip
            ledger.add_environment(made, design, sample_id, self.steps)
            ledger.add_group(
                group(play, parent_group=design, environment_id=made.environment_id, members=4)
            )
            for index, (plain, hinted) in enumerate(pairs):
                for arm, value in (("no_hint", plain), ("with_hint", hinted)):
                    words = {
                        "observation": f"say {index}",
                        "hint": "it is 7" if arm == "with_hint" else None,
                        "transcript": [{"action": action, "observation": "done", "reward": value}],
                    }
                    ledger.add_sample(
                        sample(
                            f"{play}.{arm}.{index}", play, purpose="train" if arm == "no_hint"
                            else "measure", environment_id=made.environment_id,
                            seed=SEEDS[index], arm=arm, index=index, episode_return=value,
                            num_tokens=7, num_trained_tokens=4,
                            extra_json=json.dumps(words if index in words_of else {}),
                        ),
                        trace() if arm == "no_hint" else None,
                    )  # fmt: skip
            ledger.set_estimate(made.environment_id, estimate(pairs, kind))
        return made.environment_id

    def step(self, sample_ids: list[str], metrics: dict[str, float] | None = None) -> None:
        """Train these samples in one step."""
        self.steps += 1
        rows = [
            BatchSample(sample_id, sample_id.rsplit(".", 1)[0], 0.25, 1) for sample_id in sample_ids
        ]
        with self.ledger.transaction():
            self.ledger.plan_batch(self.steps, 0, self.steps, rows)
        with self.ledger.transaction(full=True):
            self.ledger.consume_batch(
                self.steps,
                report(0, self.steps, sample_ids, metrics=metrics or {}),
                1000.0 + 10.0 * self.steps,
            )

    def close(self) -> Path:
        """The folder, ready to be looked at."""
        self.ledger.close()
        return self.folder
