"""The shape of a program as features of its syntax tree, taken in the jail.

The host parses no text of a model: a hostile one can crash the parser. So a trusted program runs in
a fresh worker, gets the text as its action and parses it there; a worker that dies over it costs
the features of that text and nothing else.

A feature is a node with its parent and its children, by kind, and how often it came before. Names
that the program binds itself and all literals are left out; names of builtins, modules and methods
stay, for they say what the program does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spade_async.environment.session import Jail, JailUse, open_session

MAX_FEATURES = 3000
"""Of a larger program the features with the smallest hashes are taken, the same ones everywhere."""

_DIGITS = 8

SHAPE_SOURCE = f"""
import ast
from binascii import crc32

TOLD = {MAX_FEATURES}
MOST_REPEATS = 8

class ShapeEnv:
    def reset(self, seed=None):
        return "ready", {{}}
    def step(self, action):
        found = sorted(features(ast.parse(action)))[:TOLD]
        return "".join(f"{{h:0{_DIGITS}x}}" for h in found), 1.0, True, False, {{}}

def features(tree):
    names, attributes = bound(tree)
    label = lambda node: label_of(node, names, attributes)
    found, counts = set(), Counter()
    stack = [(tree, "")]
    while stack:
        node, above = stack.pop()
        own = label(node)
        children = [c for c in ast.iter_child_nodes(node) if not is_left_out(c)]
        text = f"{{above}}>{{own}}(" + ",".join(map(label, children[:12])) + ")"
        counts[text] += 1
        if counts[text] <= MOST_REPEATS:
            found.add(crc32(f"{{text}}#{{counts[text]}}".encode()))
        stack.extend((child, own) for child in children)
    return found

def is_left_out(node):
    if isinstance(node, (ast.Load, ast.Store, ast.Del)):
        return True
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)

def bound(tree):
    names, attributes = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
            attributes.add(node.name)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            attributes.add(node.attr)
    return names, attributes

def label_of(node, names, attributes):
    kind = type(node).__name__
    if isinstance(node, ast.Name):
        return kind if node.id in names else kind + ":" + node.id
    if isinstance(node, ast.Attribute):
        return kind if node.attr in attributes else kind + ":" + node.attr
    if isinstance(node, ast.Constant):
        return kind + ":" + type(node.value).__name__
    if isinstance(node, ast.alias):
        return kind + ":" + node.name
    return kind
"""


async def shape_features(pool: Jail, source: str, use: JailUse) -> NDArray[np.uint32] | None:
    """Hashes of the features of a program, ascending; None when it could not be parsed there.

    Raises:
        SandboxError: the jail failed.
    """
    async with open_session(pool, SHAPE_SOURCE, 0, use) as session:
        if not session.loaded.ok or not (await session.reset()).ok:
            return None
        reply = await session.step(source)
    return _read(reply.observation) if reply.ok else None


def _read(text: str) -> NDArray[np.uint32] | None:
    size = len(text)
    if not 0 < size <= _DIGITS * MAX_FEATURES or size % _DIGITS or not text.isascii():
        return None
    try:
        return np.frombuffer(bytes.fromhex(text), ">u4").astype(np.uint32)
    except ValueError:
        return None
