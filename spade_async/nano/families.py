"""The 12 families of the nano grammar: what each computes, as source text and as a reference.

A family is a table row: the expressions of its program (text that only ever runs in the jail) and
the same rule as a plain function (`solve`), from which the warm start takes its answers. A test
holds the two against each other. Sampling of constants lives in `grammar.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

LEVELS = (1, 2, 3, 4)
"""Difficulty levels; 1 is nearly solved after the warm start, 2 to 4 are a graded frontier."""

ALPHABET = "abcdefghijkl"
"""Letters of string families; a program names a prefix of it."""

JOIN = '" ".join(map(str, x))'
GLUE = '"".join(map(str, x))'

Items = list[int] | list[str]


@dataclass(frozen=True, slots=True)
class Solved:
    """One instance solved by the reference rule."""

    observation: str
    answer: str
    own_hint: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """Inclusive ranges of a (family, level)'s constants."""

    hi: tuple[int, int] = (9, 9)
    """Upper bound of the first `randint`, or length of the alphabet for letters."""
    n: tuple[int, int] = (2, 2)
    """List length."""
    lo: tuple[int, int] = (1, 1)
    lo2: tuple[int, int] = (1, 1)
    hi2: tuple[int, int] = (9, 9)
    """Bounds of the second `randint` (pairs and steps)."""


@dataclass(frozen=True, slots=True)
class Family:
    """One family. `measure` and `thresholds` say which constant makes it hard."""

    name: str
    class_name: str
    generators: tuple[str, ...]
    forms: tuple[tuple[str, str], ...]
    """(answer expression, observation expression), one pair per variant."""
    own_hint: str
    """Expression of the family's own hint, besides the generic ones."""
    solve: Callable[[Items, int, int], Solved]
    """(x, k, form) to the solved instance."""
    measure: str
    """"hi", "hi2", "max" (of both) or "n"."""
    thresholds: tuple[int, int, int]
    """Largest measure of levels 1, 2 and 3; anything above is level 4."""
    bounds: tuple[Bounds, Bounds, Bounds, Bounds]
    indexed: bool = False
    """Whether the program draws an index k."""


def _join(x: Items) -> str:
    return " ".join(map(str, x))


def _glue(x: Items) -> str:
    return "".join(map(str, x))


def _ints(x: Items) -> list[int]:
    return [int(v) for v in x]


def _pair(
    word: str, rule: Callable[[int, int], int], own: Callable[[int, int], str]
) -> Callable[[Items, int, int], Solved]:
    def solve(x: Items, k: int, form: int) -> Solved:
        a, b = _ints(x)[:2]
        return Solved(f"{word} {_join(x)}", str(rule(a, b)), own(a, b))

    return solve


def _extreme(word: str, pick: Callable[[list[int]], int]) -> Callable[[Items, int, int], Solved]:
    def solve(x: Items, k: int, form: int) -> Solved:
        best = pick(_ints(x))
        return Solved(f"{word} {_join(x)}", str(best), f"at {_ints(x).index(best)}")

    return solve


def _sum(x: Items, k: int, form: int) -> Solved:
    values = _ints(x)
    half = sum(values[: len(values) // 2])
    return Solved(f"sum {_join(x)}", str(sum(values)), f"half {half}")


def _reverse(x: Items, k: int, form: int) -> Solved:
    answer = _glue(x[::-1])
    return Solved(f"reverse {_glue(x)}", answer, answer[:3])


def _sort(x: Items, k: int, form: int) -> Solved:
    answer = _glue(sorted(_ints(x)))
    return Solved(f"sort {_glue(x)}", answer, answer[:3])


def _count(x: Items, k: int, form: int) -> Solved:
    half = list(x[: len(x) // 2]).count(x[0])
    return Solved(f"count {_glue(x)}", str(list(x).count(x[0])), f"half {half}")


def _nth(x: Items, k: int, form: int) -> Solved:
    return Solved(f"nth {k} in {_join(x)}", str(x[k]), f"after {x[k - 1]}")


def _sequence(x: Items, k: int, form: int) -> Solved:
    step = f"step {_ints(x)[1] - _ints(x)[0]}"
    if form == 0:
        return Solved(f"next {_join(x[:-1])}", str(x[-1]), step)
    return Solved(f"prev {_join(x[1:])}", str(x[0]), step)


def _arith(
    name: str,
    class_name: str,
    op: str,
    own_text: str,
    solve: Callable[[Items, int, int], Solved],
    thresholds: tuple[int, int, int],
    bounds: tuple[Bounds, Bounds, Bounds, Bounds],
    generators: tuple[str, ...] = ("pair", "list"),
    measure: str = "max",
) -> Family:
    rule = f"abs(x[0] {op} x[1])" if op == "-" else f"x[0] {op} x[1]"
    forms = ((f"str({rule})", f'"{name} " + {JOIN}'),)
    return Family(name, class_name, generators, forms, own_text, solve, measure, thresholds, bounds)


def _plain(lo: tuple[int, int], hi: tuple[int, int]) -> Bounds:
    return Bounds(hi=hi, lo=lo, lo2=lo, hi2=hi)


_ADDITIVE = (
    _plain((1, 2), (5, 9)),
    _plain((1, 9), (15, 30)),
    _plain((10, 19), (45, 99)),
    _plain((100, 150), (250, 999)),
)
_LISTS = (
    Bounds(hi=(5, 9), n=(2, 3)),
    Bounds(hi=(15, 60), n=(4, 4), lo=(1, 9)),
    Bounds(hi=(60, 99), n=(5, 6), lo=(1, 20)),
    Bounds(hi=(200, 999), n=(7, 8), lo=(1, 99)),
)
_EXTREMES = ("list", "sample")

_ALL = (
    _arith(
        "add",
        "Add",
        "+",
        '"ones " + str(x[0] % 10 + x[1] % 10)',
        _pair("add", lambda a, b: a + b, lambda a, b: f"ones {a % 10 + b % 10}"),
        (9, 39, 99),
        _ADDITIVE,
    ),
    _arith(
        "sub",
        "Sub",
        "-",
        '"tens " + str(abs(x[0] // 10 - x[1] // 10))',
        _pair("sub", lambda a, b: abs(a - b), lambda a, b: f"tens {abs(a // 10 - b // 10)}"),
        (9, 39, 99),
        _ADDITIVE,
    ),
    _arith(
        "mul",
        "Mul",
        "*",
        '"less " + str(x[0] * x[1] - x[0])',
        _pair("mul", lambda a, b: a * b, lambda a, b: f"less {a * b - a}"),
        (5, 9, 19),
        (
            _plain((1, 2), (3, 5)),
            _plain((1, 3), (6, 9)),
            _plain((2, 5), (11, 19)),
            _plain((10, 19), (25, 60)),
        ),
    ),
    _arith(
        "mod",
        "Mod",
        "%",
        '"below " + str(x[0] - x[0] % x[1])',
        _pair("mod", lambda a, b: a % b, lambda a, b: f"below {a - a % b}"),
        (9, 29, 69),
        (
            Bounds(hi=(5, 9), lo2=(2, 2), hi2=(3, 4)),
            Bounds(hi=(12, 25), lo=(1, 9), lo2=(2, 3), hi2=(4, 6)),
            Bounds(hi=(35, 60), lo=(1, 20), lo2=(3, 5), hi2=(6, 9)),
            Bounds(hi=(80, 199), lo=(10, 40), lo2=(5, 9), hi2=(11, 19)),
        ),
        generators=("pair",),
        measure="hi",
    ),
    Family(
        "max",
        "Max",
        _EXTREMES,
        (("str(max(x))", f'"max " + {JOIN}'),),
        '"at " + str(x.index(max(x)))',
        _extreme("max", max),
        "n",
        (3, 4, 6),
        _LISTS,
    ),
    Family(
        "min",
        "Min",
        _EXTREMES,
        (("str(min(x))", f'"min " + {JOIN}'),),
        '"at " + str(x.index(min(x)))',
        _extreme("min", min),
        "n",
        (3, 4, 6),
        _LISTS,
    ),
    Family(
        "sum",
        "Sum",
        _EXTREMES,
        (("str(sum(x))", f'"sum " + {JOIN}'),),
        '"half " + str(sum(x[:len(x) // 2]))',
        _sum,
        "n",
        (2, 4, 6),
        (
            Bounds(hi=(5, 9), n=(2, 2)),
            Bounds(hi=(5, 9), n=(3, 4)),
            Bounds(hi=(9, 19), n=(5, 6)),
            Bounds(hi=(15, 60), n=(7, 8), lo=(1, 5)),
        ),
    ),
    Family(
        "reverse",
        "Reverse",
        ("letters", "shuffle"),
        (('"".join(x[::-1])', f'"reverse " + {GLUE}'),),
        "self.a[:3]",
        _reverse,
        "n",
        (3, 4, 6),
        (
            Bounds(hi=(3, 12), n=(2, 3)),
            Bounds(hi=(4, 12), n=(4, 4)),
            Bounds(hi=(6, 12), n=(5, 6)),
            Bounds(hi=(9, 12), n=(7, 9)),
        ),
    ),
    Family(
        "sort",
        "Sort",
        _EXTREMES,
        (('"".join(map(str, sorted(x)))', f'"sort " + {GLUE}'),),
        "self.a[:3]",
        _sort,
        "n",
        (3, 4, 6),
        (
            Bounds(hi=(5, 9), n=(2, 3), lo=(0, 1)),
            Bounds(hi=(6, 9), n=(4, 4), lo=(0, 1)),
            Bounds(hi=(8, 9), n=(5, 6), lo=(0, 1)),
            Bounds(hi=(9, 9), n=(7, 9), lo=(0, 1)),
        ),
    ),
    Family(
        "count",
        "Count",
        ("letters", "list"),
        (("str(x.count(x[0]))", f'"count " + {GLUE}'),),
        '"half " + str(x[:len(x) // 2].count(x[0]))',
        _count,
        "n",
        (3, 4, 6),
        (
            Bounds(hi=(2, 4), n=(2, 3)),
            Bounds(hi=(2, 4), n=(4, 4)),
            Bounds(hi=(2, 5), n=(5, 6)),
            Bounds(hi=(2, 5), n=(7, 10)),
        ),
    ),
    Family(
        "nth",
        "Nth",
        _EXTREMES,
        (("str(x[k])", f'"nth " + str(k) + " in " + {JOIN}'),),
        '"after " + str(x[k - 1])',
        _nth,
        "n",
        (3, 5, 7),
        (
            Bounds(hi=(5, 9), n=(2, 3)),
            Bounds(hi=(6, 30), n=(4, 5)),
            Bounds(hi=(15, 60), n=(6, 7)),
            Bounds(hi=(50, 99), n=(8, 10)),
        ),
        indexed=True,
    ),
    Family(
        "sequence",
        "Sequence",
        ("steps",),
        (
            ("str(x[-1])", '"next " + " ".join(map(str, x[:-1]))'),
            ("str(x[0])", '"prev " + " ".join(map(str, x[1:]))'),
        ),
        '"step " + str(x[1] - x[0])',
        _sequence,
        "hi2",
        (4, 10, 27),
        (
            Bounds(hi=(5, 9), n=(3, 4), hi2=(2, 4)),
            Bounds(hi=(9, 30), n=(3, 4), lo2=(2, 3), hi2=(5, 9)),
            Bounds(hi=(20, 60), n=(4, 5), lo=(1, 9), lo2=(3, 9), hi2=(12, 25)),
            Bounds(hi=(40, 99), n=(4, 5), lo=(5, 20), lo2=(11, 19), hi2=(30, 90)),
        ),
    ),
)

FAMILIES = MappingProxyType({family.name: family for family in _ALL})
"""All families by name, in a fixed order."""


def level_of(family: Family, *, hi: int, hi2: int, n: int) -> int:
    """Level (1 to 4) of a program of that family from the constant that makes it hard."""
    measures = {"hi": hi, "hi2": hi2, "max": max(hi, hi2), "n": n}
    value = measures[family.measure]
    return 1 + sum(value > threshold for threshold in family.thresholds)
