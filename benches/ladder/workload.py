"""The environments that are played: a grid game of the size a model writes, and one with numpy."""

from __future__ import annotations

GRID = '''
class GridEnv:
    """Reach the goal on an 8x8 grid with walls, by the name of a move in a box."""

    SIZE = 8
    MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}

    def __init__(self, max_turns=25):
        self.max_turns = max_turns
        self.rng = random.Random(0)
        self.turn = 0

    def reset(self, seed=None):
        self.rng = random.Random(seed)
        self.turn = 0
        cells = [(row, column) for row in range(self.SIZE) for column in range(self.SIZE)]
        self.walls = set(self.rng.sample(cells, 10))
        free = [cell for cell in cells if cell not in self.walls]
        self.place, self.goal = self.rng.sample(free, 2)
        text = f"You stand at {self.place}, the goal is {self.goal}. " + self._around()
        return text, {"walls": len(self.walls)}

    def _around(self):
        open_moves = [
            name
            for name, (down, right) in self.MOVES.items()
            if self._free((self.place[0] + down, self.place[1] + right))
        ]
        if not open_moves:
            return "Walls are on all sides."
        return "Open: " + ", ".join(sorted(open_moves)) + "."

    def _free(self, cell):
        inside = 0 <= cell[0] < self.SIZE and 0 <= cell[1] < self.SIZE
        return inside and cell not in self.walls

    def step(self, action):
        self.turn += 1
        cut = self.turn >= self.max_turns
        found = re.search(r"\\\\boxed\\{(\\w+)\\}", action)
        word = found.group(1) if found else action.strip()
        if word == "look":
            return self._around(), 0.0, False, cut, {}
        if word not in self.MOVES:
            return f"Unknown move {word!r}.", -0.1, False, cut, {}
        down, right = self.MOVES[word]
        target = (self.place[0] + down, self.place[1] + right)
        if not self._free(target):
            return f"A wall is at {target}.", -0.05, False, cut, {"turn": self.turn}
        self.place = target
        if self.place == self.goal:
            return "You are there.", 1.0, True, False, {"turn": self.turn}
        return f"You went {word}, now at {target}.", 0.0, False, cut, {"turn": self.turn}

    def hint(self):
        down = self.goal[0] - self.place[0]
        right = self.goal[1] - self.place[1]
        steps = []
        if down:
            steps.append(f"{abs(down)} {'down' if down > 0 else 'up'}")
        if right:
            steps.append(f"{abs(right)} {'right' if right > 0 else 'left'}")
        return "The goal is " + " and ".join(steps) + " from here."
'''
"""About 2.5 kB: compiling it takes 0.45 to 0.7 ms, one step in process about 2 us."""

NUMPY_GRID = GRID.replace(
    "self.rng = random.Random(seed)\n",
    "self.rng = random.Random(seed)\n"
    "        self.heat = np.random.default_rng(seed).random((self.SIZE, self.SIZE))\n",
).replace(
    "self.place = target\n",
    "self.place = target\n        self.heat[target] += self.heat.mean()\n",
)
"""The same game with an array in it."""

ACTION = "\\boxed{up}"
"""Legal in every state and never the end: the goal is told by `terminated`, which benches heed."""

MOVES = ("up", "left", "down", "right")


def moves(num_steps: int) -> list[str]:
    """Actions of one episode, round and round so that the game goes on."""
    return [f"\\boxed{{{MOVES[turn % 4]}}}" for turn in range(num_steps)]
