"""An engine whose weights are proven before its tokens are used.

After each swap three things are checked, in this order: the digest of every tensor as it stands in
memory; the log-probabilities of a probe, against those that the learner computed; the cache, by
sampling from the probe and scoring what was said. Guarantees: no generation that holds a token of a
version is given out before that version was attested here; what was sampled while a swap turned out
wrong fails with `GenerationError`; new requests wait until weights are attested again. Works with
any `Engine`. When the inner engine dies, its errors pass through.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spade_async.engine.leases import Leases
from spade_async.engine.protocol import Engine, Generation, LoadReport, Sampling
from spade_async.errors import GenerationError, WeightsError
from spade_async.types import PolicyVersion
from spade_async.weights.attestation import Attestation

TOLERANCES = {"float32": 1e-3, "float16": 2e-2, "bfloat16": 0.5}
"""Largest difference of a log-probability, in nats, by the type an engine computes in. Two kernels
that compute the same in another order stay well below; a weight set of another step does not need
to stand out, its digests do. bfloat16 keeps 8 bits, a tenth of a nat of a log-probability of 20:
0.05 to 0.33 were seen for the same weights, by the processor's kernels."""
CACHE_TOKENS = 3
"""Tokens sampled from the first sequence of the probe to check the cache."""
_NO_LOGPROBS = (
    "the engine gives no log-probabilities of what it samples, which learner.correction.rule "
    'needs; take another engine.kind, or learner.correction.rule="none"'
)


class NotAttested(WeightsError):
    """Weights are loaded and are not what the learner published; `reason` says what disagrees."""

    def __init__(self, version: PolicyVersion, reason: str) -> None:
        super().__init__(f"weights {version} do not attest: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Attested:
    """A swap that was proven."""

    report: LoadReport
    probe_gap: float
    """Largest difference of a log-probability that was seen, nats."""
    attest_s: float


class AttestedEngine:
    """`Engine` around another one. Call everything from one event loop."""

    def __init__(self, engine: Engine, *, needs_logprobs: bool = True) -> None:
        """Guard an engine.

        Args:
            engine: the one that works.
            needs_logprobs: whether what it samples is of no use without log-probabilities
                (`config.correction`): an engine that gives none is then found out at its first
                load, before anything is sampled for a step.
        """
        self._engine = engine
        self._needs_logprobs = needs_logprobs
        self._loading = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._unattested: int | None = None
        """Packed version that is swapped in, or about to be, and not proven."""
        self._rejected = ""
        """Why the present weights are not to be used; "" while nothing speaks against them."""
        self._rejections: list[tuple[int, str]] = []
        """Every rejection: packed version and reason."""

    @property
    def dtype(self) -> str:
        """See `Engine.dtype`."""
        return self._engine.dtype

    @property
    def leases(self) -> Leases | None:
        """Those of the inner engine."""
        return getattr(self._engine, "leases", None)

    async def generate(self, prompt_ids: list[int], sampling: Sampling) -> Generation:
        """See `Engine.generate`.

        Raises:
            GenerationError: also when it holds tokens of weights that were rejected.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: not self._rejected)
        seen = len(self._rejections)
        generation = await self._engine.generate(prompt_ids, sampling)
        newest = int(generation.versions.max(initial=-1))
        async with self._changed:
            await self._changed.wait_for(
                lambda: (
                    self._unattested is None
                    or newest < self._unattested
                    or len(self._rejections) > seen
                )
            )
        for version, reason in self._rejections[seen:]:
            if newest >= version:
                raise GenerationError(
                    f"sampled on weights {PolicyVersion.unpack(version)} that did not attest: "
                    f"{reason}"
                )
        return generation

    async def load_weights(self, version: PolicyVersion, location: str, digest: str) -> LoadReport:
        """See `Engine.load_weights`; nothing is proven beyond what the inner engine checks."""
        return (await self.load_attested(version, location, digest, Attestation())).report

    async def load_attested(
        self, version: PolicyVersion, location: str, digest: str, expected: Attestation
    ) -> Attested:
        """Swap weights in and prove them.

        Raises:
            NotAttested: they are in and are wrong: nothing is generated until a load succeeds.
            WeightsError: they could not be loaded; the ones before are in use.
            GenerationError: the engine is dead.
        """
        async with self._loading:
            before = self._unattested
            self._unattested = version.packed
            try:
                report = await self._engine.load_weights(version, location, digest)
            except BaseException:
                await self._set(before, self._rejected)
                raise
            began = time.monotonic()
            reason, gap = await self._disagreement(version, expected)
            if reason is not None:
                self._rejections.append((version.packed, reason))
                await self._set(version.packed, reason)
                raise NotAttested(version, reason)
            await self._set(None, "")
            return Attested(report, gap, time.monotonic() - began)

    async def tensor_digests(self) -> dict[str, str]:
        """See `Engine.tensor_digests`."""
        return await self._engine.tensor_digests()

    async def score(self, token_ids: list[int], temperature: float) -> NDArray[np.float32]:
        """See `Engine.score`."""
        return await self._engine.score(token_ids, temperature)

    async def sleep(self) -> None:
        """See `Engine.sleep`."""
        await self._engine.sleep()

    async def wake(self) -> None:
        """See `Engine.wake`."""
        await self._engine.wake()

    def stats(self) -> dict[str, float]:
        """See `Engine.stats`; also rejected_loads."""
        return self._engine.stats() | {"rejected_loads": float(len(self._rejections))}

    async def close(self) -> None:
        """See `Engine.close`."""
        await self._engine.close()

    async def _set(self, unattested: int | None, rejected: str) -> None:
        async with self._changed:
            self._unattested, self._rejected = unattested, rejected
            self._changed.notify_all()

    async def _disagreement(
        self, version: PolicyVersion, expected: Attestation
    ) -> tuple[str | None, float]:
        """What is wrong, or None; and the largest difference of a log-probability."""
        if not expected.tensors and not expected.ids:
            return None, 0.0
        # At the same time: each is a round trip to an engine that decodes meanwhile.
        digests, gap, (cache_gap, odd) = await asyncio.gather(
            self._digests(expected), self._probe_gap(expected), self._cache_gap(version, expected)
        )
        tolerance = TOLERANCES[self._engine.dtype]
        wrong = _wrong_tensors(expected.tensors, digests)
        if wrong is None and not gap <= tolerance:
            wrong = _apart("the probe's log-probabilities", gap, tolerance)
        wrong = odd if wrong is None else wrong
        if wrong is None and not cache_gap <= tolerance:
            wrong = _apart("sampled and scored log-probabilities (the cache)", cache_gap, tolerance)
        return wrong, max(gap, cache_gap)

    async def _digests(self, expected: Attestation) -> dict[str, str]:
        return await self._engine.tensor_digests() if expected.tensors else {}

    async def _probe_gap(self, expected: Attestation) -> float:
        """Largest difference between the learner's log-probabilities and ours."""
        found = await asyncio.gather(*(self._engine.score(ids, 1.0) for ids in expected.ids))
        pairs = zip(found, expected.logprobs, strict=True)
        return max((_gap(ours, np.asarray(theirs)) for ours, theirs in pairs), default=0.0)

    async def _cache_gap(
        self, version: PolicyVersion, expected: Attestation
    ) -> tuple[float, str | None]:
        """Largest difference between sampling and scoring; what else is odd about what it said."""
        if not expected.ids:
            return 0.0, None
        prompt = expected.ids[0]
        said = await self._engine.generate(
            prompt,
            Sampling(
                temperature=0.0,
                max_new_tokens=CACHE_TOKENS,
                stop_token_ids=(),
                seed=0,
                min_version=version.packed,
                urgent=True,
            ),
        )
        others = said.versions[said.versions != version.packed]
        if others.size:
            return 0.0, f"it samples under version {PolicyVersion.unpack(int(others[0]))}"
        if np.isnan(said.logprobs).all():
            # Without them there is nothing to hold the cache against.
            return 0.0, _NO_LOGPROBS if self._needs_logprobs else None
        scored = await self._engine.score([*prompt, *said.token_ids.tolist()], 1.0)
        return _gap(said.logprobs, scored[-len(said.logprobs) :]), None


def _wrong_tensors(expected: dict[str, str], found: dict[str, str]) -> str | None:
    """Which tensors are not those that were published; None also when none can be told."""
    if not found:
        return None
    names = sorted(expected.keys() & found.keys())
    wrong = [name for name in names if expected[name] != found[name]]
    if not wrong:
        return None if names else "none of its tensors has a name that was published"
    return f"{len(wrong)} of {len(names)} tensors differ from those published, first {wrong[0]}"


def _gap(found: NDArray[np.float32], expected: NDArray[np.float64] | NDArray[np.float32]) -> float:
    """Largest absolute difference; infinite when something is not finite or has another shape."""
    if found.shape != expected.shape or not np.isfinite(found).all():
        return float("inf")
    return float(np.abs(found - expected).max(initial=0.0))


def _apart(what: str, gap: float, tolerance: float) -> str:
    return f"{what} differ by {gap:.3g} nats, at most {tolerance:g} is allowed"
