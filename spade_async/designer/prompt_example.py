"""A complete small game in the form the prompts ask for; shown where the turn limit leaves room.

Text for a prompt: it is run in the jail only, by a test that holds it to the contract.
"""

from __future__ import annotations

MIN_TURNS = 10
"""`agent.max_turns` from which it is shown: the longest way to win takes eight actions."""

_METHODS = """
    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn = 0
        self.place = 0
        self.colours = ["grey"] + rng.sample(["red", "blue", "green", "white", "black"], 5)
        self.parcels = rng.sample(self.colours[1:], 2)
        return self._view("You have two parcels to deliver."), {}

    def step(self, action):
        self.turn += 1
        box = re.search(r"\\\\boxed\\{([^{}]*)\\}", str(action))
        words = box.group(1).lower().split() if box else []
        won = lost = False
        if words in (["go", "left"], ["go", "right"]):
            self.place = (self.place + (1 if words[1] == "right" else -1)) % 6
            news = f"This house is {self.colours[self.place]}."
        elif len(words) == 2 and words[0] == "ask" and words[1] in "0 1 2 3 4 5".split():
            news = f"House {words[1]} is {self.colours[int(words[1])]}."
        elif len(words) == 2 and words[0] == "drop" and words[1] in self.parcels:
            if self.colours[self.place] == words[1]:
                self.parcels.remove(words[1])
                won = not self.parcels
                news = "Delivered. All is done!" if won else "Delivered."
            else:
                lost = True
                news = "Wrong house: the parcel is gone, and so is your job."
        else:
            news = "That is no action here."
        terminated = won or lost
        truncated = not terminated and self.turn >= self.max_turns
        return self._view(news), 1.0 if won else 0.0, terminated, truncated, {}

    def _view(self, news):
        return (
            f"{news}\\nSix houses, 0 to 5, stand in a ring; you are at house {self.place}. "
            f"Parcels left, each for the house of its colour: {' '.join(self.parcels) or 'none'}. "
            f"Turn {self.turn} of {self.max_turns}.\\nActions, in \\\\boxed{{}}: go left, "
            "go right, ask N (colour of house N), drop COLOUR (the wrong house loses everything)."
        )

    def solution(self):
        actions, place = [], 0
        for colour in self.parcels:
            house = self.colours.index(colour)
            right = (house - place) % 6
            walk = ["go right"] * right if right <= 3 else ["go left"] * (6 - right)
            actions += [*walk, f"drop {colour}"]
            place = house
        return "\\n".join(f"\\\\boxed{{{action}}}" for action in actions)
"""

_HINT = """
    def hint(self):
        return (
            "Asking tells the colour of a far house in one turn, walking tells the next one only. "
            "Find both houses first, then take the shorter way; answer like \\\\boxed{go left}."
        )
"""


def example(max_turns: int, *, with_hint: bool) -> str:
    """The program, without a fence."""
    head = f"""import random
import re


class CourierEnv:
    def __init__(self, max_turns={max_turns}):
        self.max_turns = max_turns
        self.turn = 0
"""
    return head + _METHODS + (_HINT if with_hint else "")
