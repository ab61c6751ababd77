"""Reading and repairing program texts, in the jail: closed cases of both rules, hostile texts."""

from __future__ import annotations

import asyncio

import pytest

from spade_async.environment.inspector import Inspection, Rule, inspect
from spade_async.environment.session import JailUse
from spade_async.sandbox import Pool, SandboxPolicy
from tests.attacks.test_host_parsing import SOURCES

pytestmark = pytest.mark.timeout(90)
POLICY = SandboxPolicy(num_workers=4, spares=2, memory_bytes=64 << 20)


def look(texts: list[str], rule: Rule) -> list[Inspection | None]:
    async def use() -> list[Inspection | None]:
        async with Pool(POLICY) as pool:
            tasks = [inspect(pool, text, rule=rule, use=JailUse()) for text in texts]
            return list(await asyncio.gather(*tasks))

    return asyncio.run(use())


# (text, what ours makes of it, what the reference makes of it); None: it cannot be repaired.
CASES = {
    # A3.
    "golden": (
        'x = f"use \\boxed{<answer>}"', 'x = f"use \\boxed{{<answer>}}"',
        'x = f"use \\boxed{{<answer>}}"',
    ),
    "valid fields on the line stay": (
        'x = f"{y:.2f} {y!r} {<a>}"', 'x = f"{y:.2f} {y!r} {{<a>}}"',
        'x = f"{{y:.2f}} {{y!r}} {{<a>}}"',  # errata
    ),
    "a dict on the line stays": (
        'x = {"a": 1}; z = f"{your move}"', 'x = {"a": 1}; z = f"{{your move}}"',
        'x = {{"a": 1}}; z = f"{{your move}}"',  # errata: unhashable, at run time
    ),
    "two faulty lines": (
        'x = f"{<a>}"\ny = f"{<b>} {1}"', 'x = f"{{<a>}}"\ny = f"{{<b>}} {1}"',
        'x = f"{{<a>}}"\ny = f"{{<b>}} {1}"',
    ),
    "an empty field": ('x = f"set {}"', 'x = f"set {{}}"', None),
    "a lone brace": ('x = f"a } b"', 'x = f"a }} b"', None),
    "nested": ('x = f"{a {1} b}"', 'x = f"{{a {1} b}}"', None),
    "a stray fence": ("x = 1\n```\ny = 2", "x = 1\n\ny = 2", None),
    "a fence within quotes stays": (
        's = """\n```\n"""\nx = f"{<a>}"', 's = """\n```\n"""\nx = f"{{<a>}}"',
        's = """\n```\n"""\nx = f"{{<a>}}"',
    ),
    "another fault": ("x = (1", None, None),
    "a fault that is no brace's": ('x = f"{1}" +', None, None),
}  # fmt: skip


@pytest.mark.parametrize("rule", ["ours", "reference"])
def test_what_becomes_of_faulty_texts(rule: Rule) -> None:
    found = look([text for text, _, _ in CASES.values()], rule)
    repaired = {n: None if f is None else f.repaired for n, f in zip(CASES, found, strict=True)}
    column = 1 if rule == "ours" else 2
    assert repaired == {name: case[column] for name, case in CASES.items()}
    for one in found:
        assert one is not None
        assert one.error is not None
        assert one.error.startswith("line ")
        assert bool(one.repairs) == (one.repaired is not None)
    assert found[0] is not None
    assert found[0].repairs == ("braces",)


def test_a_text_that_parses_is_left_as_it_is() -> None:
    text = "x = f'{1:>{2}} {{y}} {x=} {chr(1)!r:>4}'\nd = {'<a>': {1}}\n"
    for rule in ("read", "ours", "reference"):
        (found,) = look([text], rule)  # type: ignore[arg-type]
        assert found == Inspection(None)


def test_both_kinds_of_repair_are_named() -> None:
    (found,) = look(['```python\nx = f"{<a>}"\n```\n'], "ours")
    assert found is not None
    assert found.repaired == '\nx = f"{{<a>}}"\n\n'
    assert found.repairs == ("fences", "braces")


def test_imports_are_found_at_any_depth_and_guarded_ones_are_left_out() -> None:
    text = """
import os.path, numpy as np
from collections import deque
try:
    import sympy
except ImportError:
    from scipy import stats
def f():
    if 0:
        import requests
    return __import__("torch"), importlib.import_module("json")
"""
    (found,) = look([text], "read")
    assert found is not None
    assert found.imports == (
        "os.path", "numpy", "collections", "scipy", "requests", "torch", "json",
    )  # fmt: skip
    assert found.missing == ("numpy", "scipy", "requests", "torch")


def test_a_long_text_comes_through_whole() -> None:
    text = "# é\U0001f600\n" * 5000 + 'x = f"{<a>}"\nimport nothing_of_the_kind\n'
    (found,) = look([text], "ours")
    assert found is not None
    assert found.repaired == text.replace("{<a>}", "{{<a>}}")
    assert found.missing == ("nothing_of_the_kind",)


@pytest.mark.parametrize("rule", ["ours", "reference"])
def test_hostile_texts_are_read_or_not_but_harm_nobody(rule: Rule) -> None:
    texts = [*SOURCES.values(), 'f"{' * 9000, "{" * 20_000, "```\n" * 5000, 'f"""' + "{<a>}" * 5000]
    assert len(look(texts, rule)) == len(texts)
