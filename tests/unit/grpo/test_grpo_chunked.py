from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from spade_async.grpo.chunked import head_logprobs
from spade_async.grpo.loss import token_logprobs

TOKENS, VOCABULARY, WIDTH = 37, 50, 8


def inputs(dtype: torch.dtype = torch.float32, seed: int = 0) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(seed)
    return {
        "hidden": torch.randn(TOKENS, WIDTH, generator=draw, dtype=dtype),
        "weight": torch.randn(VOCABULARY, WIDTH, generator=draw, dtype=dtype),
        "bias": torch.randn(VOCABULARY, generator=draw, dtype=dtype),
        "targets": torch.randint(0, VOCABULARY, (TOKENS,), generator=draw),
        "temperatures": torch.rand(TOKENS, generator=draw) + 0.5,
        "upstream": torch.randn(2, TOKENS, generator=draw, dtype=dtype) / TOKENS,
    }


def run(
    given: dict[str, Any], chunk_tokens: int | None, *, entropy: bool, bias: bool = True
) -> list[torch.Tensor]:
    """Values and gradients, plain (None) or in chunks."""
    leaves = {n: given[n].clone().requires_grad_() for n in ("hidden", "weight", "bias")}
    head = leaves["bias"] if bias else None
    targets, temperatures = given["targets"], given["temperatures"]
    if chunk_tokens is None:
        logits = F.linear(leaves["hidden"], leaves["weight"], head)
        found = token_logprobs(logits, targets, temperatures, entropy_gradient=entropy)
    else:
        found = head_logprobs(
            leaves["hidden"], leaves["weight"], head, targets, temperatures,
            entropy_gradient=entropy, chunk_logits=chunk_tokens * VOCABULARY,
        )  # fmt: skip
    assert found[1].requires_grad == entropy
    loss = (found[0] * given["upstream"][0]).sum()
    if entropy:
        loss = loss + (found[1] * given["upstream"][1]).sum()
    loss.backward()
    grads = [leaf.grad for leaf in leaves.values() if leaf.grad is not None]
    assert len(grads) == (3 if bias else 2)
    return [loss.detach(), *(f.detach() for f in found), *grads]


@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("chunk_tokens", [1, 7, 36, 37])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.float64, 1e-13)])
def test_chunks_equal_the_plain_path(
    dtype: torch.dtype, bound: float, chunk_tokens: int, bias: bool, entropy: bool
) -> None:
    given = inputs(dtype)
    plain = run(given, None, entropy=entropy, bias=bias)
    chunked = run(given, chunk_tokens, entropy=entropy, bias=bias)
    for found, expected in zip(chunked, plain, strict=True):
        scale = max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(found, expected, rtol=0, atol=bound * scale)


def test_the_gradient_is_that_of_finite_differences() -> None:
    given = inputs(torch.float64)

    def both(hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        found = head_logprobs(
            hidden, weight, bias, given["targets"][:5], given["temperatures"][:5],
            entropy_gradient=True, chunk_logits=2 * 6,
        )  # fmt: skip
        return torch.stack(found)

    given["targets"] = given["targets"] % 6
    leaves = (given["hidden"][:5], given["weight"][:6], given["bias"][:6])
    assert torch.autograd.gradcheck(both, tuple(leaf.clone().requires_grad_() for leaf in leaves))


def test_a_ruled_out_token_gives_no_nan() -> None:
    given = inputs()
    given["bias"][3] = -torch.inf
    given["targets"][:] = 4
    for found in run(given, 5, entropy=True):
        assert not torch.isnan(found).any()


class Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation makes, and the rows of every product."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0
        self.head_rows = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in found if isinstance(found, tuple | list) else [found]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        is_product = func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
        if is_product and found.shape[-1] == VOCABULARY:
            self.head_rows += found.shape[0]
        return found


@pytest.mark.parametrize("count", [1_000, 4_000])
def test_no_tensor_grows_with_vocabulary_times_tokens(count: int) -> None:
    vocabulary, width, chunk = 1_000, 4, 20_000
    hidden = torch.randn(count, width, requires_grad=True)
    weight = torch.randn(vocabulary, width, requires_grad=True)
    with Largest() as seen:
        logprobs, entropy = head_logprobs(
            hidden, weight, None, torch.zeros(count, dtype=torch.int64), torch.ones(count),
            entropy_gradient=True, chunk_logits=chunk,
        )  # fmt: skip
        (logprobs + entropy).sum().backward()
    assert seen.elements == max(chunk, count * width)


def test_tokens_without_a_gradient_are_not_computed_again() -> None:
    given = inputs()
    hidden, weight = (given[n].clone().requires_grad_() for n in ("hidden", "weight"))
    logprobs, _ = head_logprobs(
        hidden, weight, None, given["targets"], given["temperatures"], chunk_logits=VOCABULARY * 4
    )
    dropped = torch.arange(TOKENS) % 3 > 0
    with Largest() as seen:
        torch.where(dropped, 0.0, logprobs).sum().backward()
    assert seen.head_rows == int((~dropped).sum())
    assert hidden.grad is not None
    assert (hidden.grad[dropped] == 0).all()
    assert (hidden.grad[~dropped] != 0).any()


def test_without_gradients_it_only_scores() -> None:
    given = inputs()
    with torch.no_grad():
        found, _ = head_logprobs(
            given["hidden"], given["weight"], None, given["targets"], given["temperatures"],
            chunk_logits=VOCABULARY,
        )  # fmt: skip
    assert not found.requires_grad
