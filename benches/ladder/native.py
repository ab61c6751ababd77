"""The jail's own rungs through the synchronous front: ready, first reply, acquire, step, end.

What the pool cannot do yet stands in the table as "not built yet" and is measured as soon as the
attribute is there.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from benches.ladder.plan import Plan
from benches.ladder.process import Tree, gone
from benches.ladder.row import Row, Unavailable, absent
from benches.ladder.workload import moves
from spade_async.sandbox import SandboxPolicy, SyncPool, SyncSession

SEED = 7
NUM_SPARES = 12
"""Spares of the rung that takes several in a row."""
PAUSE_S = 0.003
"""Time for what a pool does behind a session's back: the next rung must not pay for it."""


def policy(
    numpy: bool = False, cache: bool = True, warm: bool = False, **values: Any
) -> SandboxPolicy:
    """A pool's limits for a bench: patient; spares are warmed where latency is the question.

    Raises:
        Unavailable: the pool does not have what is asked for.
    """
    known = {field.name for field in dataclasses.fields(SandboxPolicy)}
    values = {"wall_s_per_call": 60.0, "load_wall_s": 60.0, "cpu_s_per_call": 60.0, **values}
    values["warm_spares"] = warm
    if numpy:
        values |= {"profiles": ("numpy",)} if "profiles" in known else {"imports": ("numpy",)}
    if not cache:
        if "code_cache_bytes" in known:
            values["code_cache_bytes"] = 0
    elif "code_cache_bytes" not in known:
        raise Unavailable("not built yet: the pool has no compile cache")
    try:
        return SandboxPolicy(**values)
    except ValueError as cause:
        raise Unavailable(f"not built yet: {cause}") from None


def built(thing: object, name: str) -> Any:
    """An attribute of the pool's interface.

    Raises:
        Unavailable: it is not there yet.
    """
    if not hasattr(thing, name):
        raise Unavailable(f"not built yet: {type(thing).__name__}.{name}")
    return getattr(thing, name)


def rest(pool: SyncPool, target: int) -> None:
    """Wait until the pool has nothing left to do: spares full, no worker on its way out."""
    until = time.monotonic() + 10
    time.sleep(PAUSE_S)
    while time.monotonic() < until:
        stats = pool.stats()
        if stats["live"] == 0 and stats["spare"] >= target:
            break
        time.sleep(0.0005)
    time.sleep(PAUSE_S)


def timed(call: Callable[[], Any]) -> float:
    """Microseconds of one call that answers with a reply."""
    begun = time.perf_counter()
    reply = call()
    taken = (time.perf_counter() - begun) * 1e6
    if not reply.ok:
        raise RuntimeError(reply.detail)
    return taken


def played(session: SyncSession) -> SyncSession:
    """A session that has been reset; a failure of the environment ends the rung."""
    if not session.loaded.ok:
        raise RuntimeError(f"load: {session.loaded.detail}")
    reply = session.reset()
    if not reply.ok:
        raise RuntimeError(f"reset: {reply.detail}")
    return session


class Stepper:
    """One live session that is stepped on and on; an ended episode is reset out of the count."""

    def __init__(self, session: SyncSession) -> None:
        self.session = session
        self._moves = moves(25)
        self._turn = 0

    def step(self) -> float:
        """Microseconds of one step."""
        text = self._moves[self._turn % 25]
        self._turn += 1
        begun = time.perf_counter()
        reply = self.session.step(text)
        taken = (time.perf_counter() - begun) * 1e6
        if not reply.ok:
            raise RuntimeError(f"step: {reply.detail}")
        if reply.terminated or reply.truncated:
            played(self.session)
        return taken


class Rungs:
    """Makes the rows; each row's pool is started once and ends with the stack."""

    def __init__(self, stack: ExitStack, plan: Plan) -> None:
        self._stack, self._plan = stack, plan
        self.rows: list[Row] = []
        self.live: list[Stepper] = []

    def pool(self, **values: Any) -> SyncPool:
        """A pool that ends with the run."""
        return self._stack.enter_context(SyncPool(policy(**values)))

    def add(self, key: str, label: str, make: Callable[[], Callable[[], Sequence[float]]]) -> None:
        """A row, or its reason not to be."""
        try:
            self.rows.append(Row(key, label, make()))
        except Unavailable as reason:
            self.rows.append(absent(key, label, str(reason)))
        except Exception as error:
            self.rows.append(absent(key, label, f"failed: {type(error).__name__}: {error}"[:300]))

    def first_reply(self, spares: int, **values: Any) -> Callable[[], Sequence[float]]:
        """From the request for a worker to the first observation, one fresh worker per sample."""
        pool = self.pool(spares=spares, num_workers=4, **values)
        source = self._plan.numpy_source if values.get("numpy") else self._plan.source
        with pool.session(source, SEED) as session:
            played(session)  # fills the cache, where there is one
        rest(pool, spares)

        def take() -> list[float]:
            begun = time.perf_counter()
            with pool.session(source, SEED) as session:
                played(session)
                taken = (time.perf_counter() - begun) * 1e6
            rest(pool, spares)
            return [taken]

        return take

    def per_source(self) -> Callable[[], Sequence[float]]:
        """From the request for an episode of a prepared source to its first observation."""
        pool = self.pool(spares=0, num_workers=8)
        template = self._stack.enter_context(built(pool, "source_template")(self._plan.source))

        def take() -> list[float]:
            begun = time.perf_counter()
            with template.session(SEED) as session:
                played(session)
                taken = (time.perf_counter() - begun) * 1e6
            time.sleep(PAUSE_S)
            return [taken]

        return take

    def blank(self, numpy: bool = False) -> Callable[[], Sequence[float]]:
        """From the request for a worker, with none ready, to the answer of its first no-op."""
        pool = self.pool(spares=0, num_workers=4, numpy=numpy)
        acquire = built(pool, "acquire")
        rest(pool, 0)

        def take() -> list[float]:
            begun = time.perf_counter()
            with acquire() as worker:
                worker.ping()
                taken = (time.perf_counter() - begun) * 1e6
            rest(pool, 0)
            return [taken]

        return take

    def spares(self) -> Callable[[], Sequence[float]]:
        """From the request for a spare to the answer of its first no-op, several in a row: R too
        is measured in a row. Each worker is touched for the first time."""
        pool = self.pool(spares=NUM_SPARES, num_workers=2 * NUM_SPARES, warm=True)
        acquire = built(pool, "acquire")
        rest(pool, NUM_SPARES)

        def take() -> list[float]:
            times, workers = [], []
            for _ in range(NUM_SPARES // 2):
                begun = time.perf_counter()
                worker = acquire()
                worker.ping()
                times.append((time.perf_counter() - begun) * 1e6)
                workers.append(worker)
            for worker in workers:
                worker.close()
            rest(pool, NUM_SPARES)
            return times

        return take

    def hot(self) -> Callable[[], Sequence[float]]:
        """Steps of one session."""
        pool = self.pool(spares=1, num_workers=1, cache=False)
        session = self._stack.enter_context(pool.session(self._plan.source, SEED))
        stepper = Stepper(played(session))
        return lambda: [stepper.step() for _ in range(self._plan.steps_per_turn)]

    def noop(self) -> Callable[[], Sequence[float]]:
        """No-ops of one session: what of a step is not the environment's."""
        pool = self.pool(spares=1, num_workers=1, cache=False)
        session = self._stack.enter_context(pool.session(self._plan.source, SEED))
        ping = built(played(session), "ping")
        return lambda: [timed(ping) for _ in range(self._plan.steps_per_turn)]

    def sweep_noop(self) -> Callable[[], Sequence[float]]:
        """No-ops over many live sessions, one at a time."""
        pings = [built(stepper.session, "ping") for stepper in self.live]
        return lambda: [timed(ping) for ping in pings]

    def many(self) -> SyncPool:
        """A pool full of live sessions; sets `self.live`."""
        count = self._plan.num_live
        pool = self.pool(spares=1, num_workers=count, cache=False)
        sessions = [pool.session(self._plan.source, seed) for seed in range(count)]
        self.live = [Stepper(played(self._stack.enter_context(s))) for s in sessions]
        return pool

    def sweep(self) -> Callable[[], Sequence[float]]:
        """Steps over many live sessions, one at a time."""
        self._pool_of_many = self.many()  # the rungs below share it
        return lambda: [stepper.step() for stepper in self.live]

    def batched(self) -> Callable[[], Sequence[float]]:
        """One batched step over many live sessions, per session."""
        pool = getattr(self, "_pool_of_many", None)
        if pool is None:
            raise Unavailable("there are no live sessions")
        step_many = built(pool, "step_many")

        def take() -> list[float]:
            batch = [(stepper.session, "\\boxed{up}") for stepper in self.live]
            begun = time.perf_counter()
            replies = step_many(batch)
            taken = (time.perf_counter() - begun) * 1e6 / len(batch)
            for stepper, reply in zip(self.live, replies, strict=True):
                if not reply.ok:
                    raise RuntimeError(f"step: {reply.detail}")
                if reply.terminated or reply.truncated:
                    played(stepper.session)
            return [taken]

        return take

    def teardown(self) -> Callable[[], Sequence[float]]:
        """From `close` of a used session until no process of its worker is left."""
        pool = SyncPool(policy(spares=1, num_workers=4, cache=False))
        tree = Tree(pool.start)
        self._stack.callback(pool.close)
        rest(pool, 1)

        def take() -> list[float]:
            worker = tree.workers()[0]  # the only spare
            session = pool.session(self._plan.source, SEED)
            with session:
                played(session)
                for text in moves(3):
                    session.step(text)
                time.sleep(PAUSE_S)  # the refill is done by then
                begun = time.perf_counter()
                session.close()
                gone(worker)
                taken = (time.perf_counter() - begun) * 1e6
            rest(pool, 1)
            return [taken]

        return take


def rows(stack: ExitStack, plan: Plan) -> list[Row]:
    """All rungs of the native jail."""
    rungs = Rungs(stack, plan)
    rungs.add("ready_us.stdlib", "native, sealed and ready", rungs.blank)
    rungs.add("ready_us.numpy", "native, sealed and ready, numpy", lambda: rungs.blank(numpy=True))
    reply = "first_reply_us."
    rungs.add(f"{reply}code", "native + compiled code", lambda: rungs.first_reply(0))
    rungs.add(
        f"{reply}code_numpy",
        "native + compiled code, numpy",
        lambda: rungs.first_reply(0, numpy=True),
    )
    rungs.add(f"{reply}source", "native + source", lambda: rungs.first_reply(0, cache=False))
    rungs.add(
        f"{reply}source_numpy",
        "native + source, numpy",
        lambda: rungs.first_reply(0, numpy=True, cache=False),
    )
    rungs.add(f"{reply}per_source", "per-source template", rungs.per_source)
    rungs.add("spare_acquire_us", "spare: acquire and a no-op", rungs.spares)
    rungs.add(
        f"{reply}spare_code",
        "warmed spare + compiled code",
        lambda: rungs.first_reply(4, warm=True),
    )
    rungs.add(
        f"{reply}spare_code_cold",
        "spare that is not warmed + compiled code",
        lambda: rungs.first_reply(4),
    )
    rungs.add(
        f"{reply}spare_source",
        "warmed spare + source",
        lambda: rungs.first_reply(4, cache=False, warm=True),
    )
    rungs.add("step_us.hot", "step, hot", rungs.hot)
    rungs.add("step_us.noop_hot", "no-op to a live worker, hot", rungs.noop)
    rungs.add(f"step_us.live_{plan.num_live}", f"step over {plan.num_live} live", rungs.sweep)
    rungs.add(
        f"step_us.live_{plan.num_live}_batched",
        f"step over {plan.num_live} live, batched",
        rungs.batched,
    )
    rungs.add(
        f"step_us.noop_live_{plan.num_live}",
        f"no-op over {plan.num_live} live",
        rungs.sweep_noop,
    )
    rungs.add("teardown_us", "end of a used worker, close to reaped", rungs.teardown)
    return rungs.rows
