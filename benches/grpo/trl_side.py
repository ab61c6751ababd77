"""One run of GRPOTrainer: ``python -m benches.grpo.trl_side MODEL SIZE SEQUENCES THREADS STEPS``.

Runs under the interpreter of `install.py`. Generation is a look-up of the workload's replies, so a
step is what the learner does with them. Prints a line of JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benches.grpo import workload


class Clock(TrainerCallback):  # type: ignore[misc]
    """Seconds from the begin of a step to its end: loss, gradients, clipping, optimiser."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._began = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """See `TrainerCallback`."""
        self._began = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """See `TrainerCallback`."""
        self.seconds.append(time.perf_counter() - self._began)


def main() -> int:
    """Warm up and measure."""
    folder, size_name, sequences, threads, measured = sys.argv[1:]
    num_steps = int(measured)
    size = workload.QUICK if size_name == "quick" else workload.FULL
    torch.set_num_threads(int(threads))
    replies = workload.groups(size)
    per_group, count = len(replies[0]), sum(len(g) for g in replies)
    accumulate = count // int(sequences)

    def rollout(prompts: list[str], *_: Any) -> dict[str, Any]:
        seen: dict[str, int] = {}
        chosen = []
        for prompt in prompts:
            chosen.append(replies[int(prompt)][seen.get(prompt, 0) % per_group])
            seen[prompt] = seen.get(prompt, 0) + 1
        return {
            "prompt_ids": [r.prompt for r in chosen],
            "completion_ids": [r.reply for r in chosen],
            "logprobs": [[0.0] * len(r.reply) for r in chosen],
            "wanted": [r.reward for r in chosen],
        }

    def reward(wanted: list[float], **_: Any) -> list[float]:
        return wanted

    clock = Clock()
    with tempfile.TemporaryDirectory() as out:
        config = GRPOConfig(
            output_dir=out, use_cpu=True, bf16=False, gradient_checkpointing=False,
            per_device_train_batch_size=int(sequences), gradient_accumulation_steps=accumulate,
            num_generations=per_group, max_completion_length=4096, max_steps=num_steps + 1,
            learning_rate=workload.LR, lr_scheduler_type="constant", warmup_steps=0,
            optim="adamw_torch", adam_beta1=workload.BETAS[0], adam_beta2=workload.BETAS[1],
            weight_decay=0.0, max_grad_norm=workload.GRAD_CLIP, epsilon=workload.CLIP, beta=0.0,
            loss_type="dapo", scale_rewards="none", temperature=1.0, shuffle_dataset=False,
            logging_steps=1, save_strategy="no", report_to="none", disable_tqdm=True,
        )  # fmt: skip
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
            reward_funcs=reward, args=config, rollout_func=rollout, callbacks=[clock],
            train_dataset=Dataset.from_dict({"prompt": [str(n) for n in range(len(replies))]}),
            processing_class=AutoTokenizer.from_pretrained(folder),
        )  # fmt: skip
        loaded = workload.peak_bytes()
        trainer.train()
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    steps = [
        {"seconds": seconds, "loss": float(e["loss"]), "grad_norm": float(e["grad_norm"])}
        for seconds, e in zip(clock.seconds, logs, strict=True)
    ]
    print(json.dumps({
        "steps": steps,
        "loaded_bytes": loaded,
        "peak_bytes": workload.peak_bytes(),
        "versions": workload.versions(),
    }))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
