"""A multi-turn example: find a hidden number in at most four guesses."""

import random
import re


class FindNumberEnv:
    """One hidden number per seed; each guess is a turn."""

    def reset(self, seed=None):
        """Hide a number among fifteen."""
        rng = random.Random(seed)
        self.low = rng.randint(1, 50)
        self.hidden = self.low + rng.randint(0, 14)
        self.turn = 0
        text = f"A number between {self.low} and {self.low + 14} is hidden."
        return f"{text} Guess it, e.g. \\boxed{{{self.low}}}. You have 4 guesses.", {}

    def step(self, action):
        """Say where the number lies from the guess."""
        self.turn += 1
        found = re.search(r"-?\d+", action)
        if found is None:
            text, won = "That is no number.", False
        else:
            guess = int(found.group())
            won = guess == self.hidden
            text = "Found." if won else "Higher." if guess < self.hidden else "Lower."
        return text, float(won), won, not won and self.turn >= 4, {}

    def hint(self):
        """Bisection, with its first guess."""
        return f"Halve what is left: begin with {self.low + 7}."
