r"""How an agent acts over several turns: thinks first, or looks first. Pure (docs/guards.md).

The paper reports a shift from deriving at length before the first action to acting early and using
what the environment answers. Here that is counted, not judged by a model; every rule is a bounded
regular expression over texts that an episode holds anyway:

* *tokens before the first action*: tokens sampled until it was sent, its own included;
* *rejected*: the reward is negative, or the answer refuses the action ("invalid", "not allowed");
* *feedback*: what the environment answers to an action after which the episode goes on;
* *used*: the next action differs from the one that was answered, is none that was rejected before,
  and, when it is a number, lies within every bound that answers have given ("too low", "higher").
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_CHARS = 400
"""An answer says what it says of the last action at its beginning."""
_REFUSAL = re.compile(
    r"\b(?:invalid|illegal|not (?:allowed|valid|legal|possible|understood|permitted)|malformed"
    r"|unrecogni[sz]ed|unknown (?:action|command|move)|(?:wrong|bad) format|format error"
    r"|out of (?:range|bounds)|rejected|refused|(?:no|not an?) (?:number|integer|action|move))\b",
    re.IGNORECASE,
)
# No "more" and "less": "3 more guesses" says nothing about a number.
_MORE = r"(?:higher|larger|greater|bigger)"
_LESS = r"(?:lower|smaller)"
_ABOUT_ACTION = re.compile(
    rf"\b(?:guess|answer|attempt|try) (?:is|was) (?:(?P<more>{_MORE})|(?P<less>{_LESS}))\b",
    re.IGNORECASE,
)
_GO_UP = re.compile(rf"\b(?:too (?:low|small|few|little)|{_MORE})\b", re.IGNORECASE)
_GO_DOWN = re.compile(rf"\b(?:too (?:high|large|big|great|many|much)|{_LESS})\b", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")
_BOX = re.compile(r"\\boxed\{([^{}]{0,200})\}")


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Counts of one episode, or sums over several."""

    episodes: int = 0
    """With at least one action."""
    turns: int = 0
    """Actions."""
    first_action_tokens: int = 0
    """Tokens sampled until the first action was sent, summed over the episodes."""
    answered: int = 0
    """Actions that follow feedback."""
    used: int = 0
    """Of those, the ones that use it."""
    rejected: int = 0
    """Rejected actions that another action follows."""
    recovered: int = 0
    """Of those, the ones whose next action is not rejected."""
    rejected_episodes: int = 0
    """Episodes with a rejected action that another one follows."""
    rejected_returns: float = 0.0
    """Sum of their returns."""

    def __add__(self, other: Behaviour) -> Behaviour:
        mine, theirs = asdict(self), asdict(other)
        return Behaviour(**{name: mine[name] + theirs[name] for name in mine})

    def figures(self) -> dict[str, float | None]:
        """Means and shares by tag; None where nothing of the kind happened."""
        return {
            "behaviour/tokens_before_action": _ratio(self.first_action_tokens, self.episodes),
            "behaviour/turns": _ratio(self.turns, self.episodes),
            "behaviour/feedback_used_share": _ratio(self.used, self.answered),
            "behaviour/recovery_share": _ratio(self.recovered, self.rejected),
            "behaviour/return_after_rejection": _ratio(
                self.rejected_returns, self.rejected_episodes
            ),
        }


def of_episode(
    transcript: Sequence[Mapping[str, Any]],
    loss_mask: NDArray[np.uint8],
    episode_return: float | None,
) -> Behaviour | None:
    """Counts of one episode; None when it has no action or no return.

    Args:
        transcript: per turn "action", "observation" (the answer) and "reward".
        loss_mask: [L] 1 where a token was sampled; the first reply is the first run of ones.
        episode_return: of the whole episode.
    """
    if not transcript or episode_return is None:
        return None
    actions = [_plain(str(turn.get("action", ""))) for turn in transcript]
    is_rejected = [_is_rejected(turn) for turn in transcript]
    bounds = _Bounds()
    refused: set[str] = set()
    used = 0
    for index, turn in enumerate(transcript[:-1]):
        bounds.heard(actions[index], str(turn.get("observation", "")))
        if is_rejected[index]:
            refused.add(actions[index])
        following = actions[index + 1]
        used += following != actions[index] and following not in refused and bounds.hold(following)
    followed = [i for i in range(len(actions) - 1) if is_rejected[i]]
    return Behaviour(
        episodes=1,
        turns=len(actions),
        first_action_tokens=_first_run(loss_mask),
        answered=len(actions) - 1,
        used=used,
        rejected=len(followed),
        recovered=sum(not is_rejected[i + 1] for i in followed),
        rejected_episodes=int(bool(followed)),
        rejected_returns=episode_return if followed else 0.0,
    )


def summed(items: Iterable[Behaviour]) -> Behaviour:
    """Sums over episodes."""
    found = Behaviour()
    for item in items:
        found += item
    return found


def of_record(record: Mapping[str, Any]) -> Behaviour:
    """Inverse of `dataclasses.asdict`; unknown keys are left out."""
    return Behaviour(**{f.name: record[f.name] for f in fields(Behaviour) if f.name in record})


class _Bounds:
    """What the answers have said about numbers so far."""

    def __init__(self) -> None:
        self._above = -math.inf
        self._below = math.inf

    def heard(self, action: str, answer: str) -> None:
        """Take in the answer to an action; one that says both directions or none says nothing."""
        value = _number(action)
        text = answer[:_MOST_CHARS]
        about = _ABOUT_ACTION.search(text)
        if about is not None:
            up, down = about["less"] is not None, about["more"] is not None
        else:
            up, down = _GO_UP.search(text) is not None, _GO_DOWN.search(text) is not None
        if value is None or up == down:
            return
        if up:
            self._above = max(self._above, value)
        else:
            self._below = min(self._below, value)

    def hold(self, action: str) -> bool:
        """Whether an action contradicts no bound; one that is no number contradicts none."""
        value = _number(action)
        return value is None or self._above < value < self._below


def _is_rejected(turn: Mapping[str, Any]) -> bool:
    reward = turn.get("reward")
    if reward is not None and reward < 0.0:
        return True
    return _REFUSAL.search(str(turn.get("observation", ""))[:_MOST_CHARS]) is not None


def _plain(action: str) -> str:
    box = _BOX.search(action)
    return " ".join((box[1] if box else action)[:_MOST_CHARS].split()).casefold()


def _number(action: str) -> float | None:
    found = _NUMBER.findall(action)
    return float(found[-1]) if found else None


def _first_run(loss_mask: NDArray[np.uint8]) -> int:
    sampled = np.flatnonzero(loss_mask)
    if not sampled.size:
        return 0
    gaps = np.flatnonzero(np.diff(sampled) > 1)
    return int(gaps[0]) + 1 if gaps.size else int(sampled.size)


def _ratio(part: float, whole: int) -> float | None:
    return part / whole if whole else None
