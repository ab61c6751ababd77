"""What vLLM says of its experts, and when it is asked; without vLLM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from spade_async.config.schema import EngineConfig
from spade_async.engine.protocol import Sampling
from spade_async.engine.vllm.arguments import engine_arguments
from spade_async.engine.vllm.stream import Stream
from tests.support.hf_models import make_model
from tests.unit.engine.test_vllm_parts import life


def test_experts_of_all_lives_are_kept_from_the_first_reading() -> None:
    stream = Stream([1, 2, 3], Sampling(1.0, 8, (9,), seed=1))
    # The first life read the prompt and two of its three tokens; the next one reads all again.
    stream.state = life([4, 5, 6], [("3", 0)], np.full((5, 2, 2), 1))
    stream.keep()
    stream.state = life([9], [("3", 0)], np.full((6, 2, 2), 7))
    stream.keep()
    experts = stream.generation().experts
    assert experts is not None
    assert experts[:, 0, 0].tolist() == [1] * 5 + [7]


def test_a_mixture_is_asked_for_its_experts_where_vllm_can_say(tmp_path: Path) -> None:
    folder = make_model(tmp_path, "qwen3_moe")
    key = "enable_return_routed_experts"

    def asked(*, is_cpu: bool = False, returns: bool = True, **changes: Any) -> bool:
        config = EngineConfig.model_validate({"kind": "vllm", **changes})
        found = engine_arguments(folder, config, 64, is_cpu=is_cpu, returns_experts=returns)
        return bool(found.get(key, False))

    assert asked()
    assert not asked(is_cpu=True)
    assert not asked(returns=False)
    assert not asked(on_swap="keep")
    assert not asked(vllm={"prefix_caching": False})
    make_model(tmp_path / "dense", "qwen3")
    assert key not in engine_arguments(tmp_path / "dense", EngineConfig(), 64, is_cpu=False)
