"""A single-turn example: add the digits of a number. Try: spade-async env try THIS_FILE."""

import random


class DigitSumEnv:
    """One number per seed; one answer ends the episode."""

    def reset(self, seed=None):
        """Draw the number."""
        rng = random.Random(seed)
        self.number = rng.randint(1000, 99999)
        self.answer = str(sum(int(digit) for digit in str(self.number)))
        return f"Add the digits of {self.number}. Answer with the sum.", {}

    def step(self, action):
        """Right or wrong, and over."""
        text = action.strip()
        if text.startswith("\\boxed{") and text.endswith("}"):
            text = text[7:-1].strip()
        right = text == self.answer
        return "right" if right else "wrong", float(right), True, False, {}

    def hint(self):
        """The first step of the sum."""
        digits = str(self.number)
        return f"Start with {digits[0]} + {digits[1]} = {int(digits[0]) + int(digits[1])}."
