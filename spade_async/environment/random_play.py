"""Scripted random play of a program (design step 3): what no thought at all achieves.

Actions are what the last observation offers, its words and numbers, and integers, all boxed.
Episodes come in pairs on one instance, so that the same plays tell whether actions matter and
whether seeds differ. Source:
SPADE reference 2.5 and 2.7; its script plays five integers in 20 episodes.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

from spade_async.environment.contract import reward_problem
from spade_async.environment.session import Jail, JailUse, open_session
from spade_async.seeds import derive
from spade_async.types import Outcome, Reply

_MARKED = re.compile(r"\\boxed\{([^{}\n]{1,40})\}|[\"'`]([^\"'`\n]{1,40})[\"'`]")
_EITHER = re.compile(r"\b(\w{1,20}) or (\w{1,20})\b")
_LIST = re.compile(
    r"(?i)\b(?:actions|options|choices|commands|moves)\b[^:\n]{0,40}:([^\n.]{1,200})"
)
_NUMBER = re.compile(r"-?\d{1,9}")
_WORD = re.compile(r"[A-Za-z][A-Za-z_-]{1,19}")
_LOOKED_AT = 4000


@dataclass(slots=True)
class RandomEpisode:
    """One episode of random actions."""

    seed: int
    first: str
    """First observation."""
    actions: list[str] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)

    @property
    def won(self) -> bool:
        """Whether it ended with a reward above 0."""
        last = self.replies[-1] if self.replies else None
        return last is not None and last.terminated and (last.reward or 0.0) > 0.0

    def facts(self) -> list[tuple[str, float | None, bool, bool]]:
        """What the program answered, step by step."""
        return [(r.observation, r.reward, r.terminated, r.truncated) for r in self.replies]


@dataclass(slots=True)
class RandomPlays:
    """Episodes 2i and 2i + 1 are of one instance, with other actions."""

    episodes: list[RandomEpisode] = field(default_factory=list)
    bad: Reply | None = None
    """The call that failed, if one did; its episode is the last."""
    reward_fault: str | None = None
    wall_s: float = 0.0

    @property
    def success(self) -> float | None:
        """Share of episodes that were won; None without any."""
        if not self.episodes:
            return None
        return sum(episode.won for episode in self.episodes) / len(self.episodes)

    @property
    def seeds_differ(self) -> bool:
        """Whether two instances began differently."""
        return len({episode.first for episode in self.episodes}) > 1

    @property
    def actions_matter(self) -> bool | None:
        """Whether other actions got other answers on one instance; None of one-step episodes."""
        pairs = list(zip(self.episodes[::2], self.episodes[1::2], strict=False))
        if any(one.facts() != two.facts() for one, two in pairs):
            return True
        return False if any(len(one.replies) > 1 for one, _ in pairs) else None


def options(observation: str) -> list[str]:
    """What an observation seems to offer: boxed, quoted and listed texts, and "this or that"."""
    text = observation[:_LOOKED_AT]
    found = [a or b for a, b in _MARKED.findall(text)]
    found += [word for pair in _EITHER.findall(text) for word in pair]
    for row in _LIST.findall(text):
        found += [item.strip() for item in re.split(r"[,;|/]", row)[:20]]
    return list(dict.fromkeys(item for item in found if 0 < len(item) <= 40))


def words(observation: str) -> list[str]:
    """Its words and numbers, each once."""
    text = observation[:_LOOKED_AT]
    return list(dict.fromkeys([*_WORD.findall(text), *_NUMBER.findall(text)]))


def random_action(rng: random.Random, observation: str) -> str:
    """A boxed action: mostly what the observation offers, else a word of it or a number."""
    offered = options(observation)
    if offered and rng.random() < 0.6:
        return boxed(rng.choice(offered))
    kind = rng.random()
    if kind < 0.4:
        seen = words(observation)
        if seen:
            return boxed(rng.choice(seen))
    elif kind < 0.5:
        return boxed(f"{rng.randrange(10_000):04d}")
    elif kind < 0.6:
        return boxed(f"{rng.randrange(10)} {rng.randrange(10)}")
    return boxed(str(rng.randint(1, 100)))


def boxed(text: str) -> str:
    """The text in a box."""
    return f"\\boxed{{{text}}}"


async def play_at_random(
    pool: Jail, source: str, *, seed: int, num_episodes: int, max_turns: int, use: JailUse
) -> RandomPlays:
    """Play in one worker until `num_episodes` are done or a call fails.

    A call that runs out of time ends the plays without being a fault: the time of one worker's
    whole life is limited, and these are many episodes in one.

    Raises:
        SandboxError: the jail failed.
    """
    plays = RandomPlays()
    async with open_session(pool, source, derive(seed, "random", 0), use) as session:
        if not session.loaded.ok:
            plays.bad = session.loaded
            return plays
        for number in range(num_episodes):
            instance = derive(seed, "random", number // 2)
            rng = random.Random(derive(seed, "random actions", number))
            reply = await session.reset(instance)
            episode = RandomEpisode(instance, reply.observation)
            plays.wall_s += reply.report.wall_s
            for _ in range(max_turns):
                if not reply.ok or reply.terminated or reply.truncated:
                    break
                episode.actions.append(random_action(rng, reply.observation))
                reply = await session.step(episode.actions[-1])
                plays.wall_s += reply.report.wall_s
                if reply.ok:
                    episode.replies.append(reply)
                    plays.reward_fault = reward_problem(reply.reward)
                    if plays.reward_fault is not None:
                        break
            if reply.outcome is Outcome.TIMED_OUT:
                break
            plays.episodes.append(episode)
            if not reply.ok or plays.reward_fault is not None:
                plays.bad = reply
                break
    return plays
