"""Readies the template for its forks, and each fork for its episode: part of the runner.

A write into a page shared with the template copies it, which costs time and memory in every worker.
So the template runs a trusted environment until the interpreter has settled on the forms of its
instructions, and leaves no half-used page of the allocator; a worker runs it once, before anybody
waits for it, and touches what an episode touches.
"""

import gc

if False:  # for readers and linters: these are above in the same text
    from values import FINISHED

TRUSTED = """
class WarmEnv:
    def reset(self, seed=None):
        rng = random.Random(seed)
        self.numbers = [rng.randint(1, 9) for _ in range(3)]
        if "np" in globals():
            self.table = np.arange(9.0).reshape(3, 3) + np.random.rand(3)
        return f"Sum {self.numbers}", {}
    def step(self, action):
        match = re.search(r"boxed\\{(.*?)\\}", action)
        try:
            value = int(match.group(1) if match else action)
        except ValueError:
            return "not a number", 0.0, False, False, {}
        return "done", 1.0 if value == sum(self.numbers) else 0.0, True, False, {}
"""
"""What a worker runs once."""

REHEARSED = """
class WarmEnv:
    def __init__(self, max_turns=25):
        self.rng = random.Random(0)
    def reset(self, seed=None):
        self.rng = random.Random(seed)
        for rng in (self.rng, random):
            cells = [(row, column) for row in range(8) for column in range(8)]
            cells = rng.sample(cells, 10) + rng.choices(cells, k=2) + [rng.choice(cells)]
            rng.shuffle(cells)
            rng.randint(1, 9), rng.randrange(4), rng.uniform(1, 2), rng.gauss(0, 1)
        self.known = json.loads(json.dumps({"a": [1, 2.5, None, "x"], "b": deepcopy(cells)}))
        self.most = Counter("abca").most_common(1)
        if "np" in globals():
            table = np.random.rand(4, 4) + np.zeros((4, 4)) + np.random.randint(3, size=4)
            table = np.linalg.solve(table @ table.T + np.eye(4), np.arange(4.0))
            self.table = (table.sum(), table.tolist(), np.argmax(table), np.where(table > 0))
        return f"Known {self.known}", {}
    def step(self, action):
        re.purge()
        for pattern in (r"boxed\\{(.*?)\\}", "[0-9]+", "(a|b)*", "^x$"):
            re.search(pattern, action), re.findall(pattern, "12 13"), re.fullmatch(pattern, "ab")
        re.sub("b+", " ", action), re.split(",", action, flags=re.IGNORECASE)
        try:
            value = int(action)
        except ValueError:
            return "not a number", 0.0, False, False, {}
        return "done", 1, True, False, {"value": value}
"""
"""What the template runs many times: what environments commonly use."""

ROUNDS = 20
PLUGS = []


def make_trial(handlers, forget):
    """The function that runs the trusted environment; it leaves things as they were."""
    _, reset, step, _, compile_source, load_code, *_ = handlers
    codes = {True: compile_source(REHEARSED), False: compile_source(TRUSTED)}

    def trial(rehearsal=False):
        for call, *values in (
            (load_code, codes[rehearsal], "1"), (reset, "1"), (step, "\\boxed{x}"), (step, "3"),
        ):  # fmt: skip
            reply = call(*values)
            if reply[0] != FINISHED:
                break
        forget()
        gc.collect()
        gc.freeze()  # also sets the counters of the collector back
        return reply

    return trial


def make_ready(trial):
    """Settle the interpreter and the allocator of a template, which is about to be forked."""
    for rehearsal in (*[True] * ROUNDS, False):
        reply = trial(rehearsal)
        if reply[0] != FINISHED:
            raise RuntimeError(f"the trusted environment failed: {reply}")
    plug_pools()
    gc.freeze()


def plug_pools(block=16, largest=512, most=1 << 16, pool_bytes=16384, in_a_row=6):
    """Fill the half-used pools of the allocator, so that workers start on fresh pages."""

    def plug(size, make):
        last = row = 0
        for _ in range(most):
            PLUGS.append(made := make())
            place = id(made)
            if row and place == last + size:
                row += 1
            else:
                row = int(place % pool_bytes < 64)  # the first block of a pool
            last = place
            if row == in_a_row:
                return  # a fresh one: the holes of a used one are not in their order

    plug(block, object)
    plug(block * 2, lambda: float("1.5"))
    for size in range(block * 3, largest + 1, block):
        plug(size, lambda size=size: bytes(size - 33))  # 33 bytes of header and final zero
