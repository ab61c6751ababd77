"""A stand-in for the package math_verify, which pools of the reference's kind import.

Part of the runner. It is there only when the profile does not have the package itself. It compares
what such programs compare: numbers, fractions, percentages, plain arithmetic, simple LaTeX of
these, and texts and tuples by their letters. It knows no algebra.
"""

import ast
import fractions
import math
import re
import sys
import types

NAMES = ("ExprExtractionConfig", "LatexExtractionConfig", "StringExtractionConfig")
FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
DROPPED = re.compile(r"\\left|\\right|\\[,;!]|\\text|\\mathrm|\$|\s+")
MOST_CHARS = 2000


def install_answers():
    """Make `import math_verify` work."""
    if "math_verify" in sys.modules:
        return
    module = types.ModuleType("math_verify")
    module.parse, module.verify = parse_answer, verify_answer
    for name in NAMES:
        setattr(module, name, type(name, (), {"__init__": lambda self, *a, **k: None}))
    sys.modules["math_verify"] = module


def parse_answer(text, *ignored, **options):
    """As `math_verify.parse`: [value, text] of the last box or of the whole; [] of nothing."""
    if not isinstance(text, str):
        return [text]
    text = text[-MOST_CHARS:]
    start = text.rfind("\\boxed{")
    if start >= 0:
        depth, inner = 1, text[start + 7 :]
        for place, letter in enumerate(inner):
            depth += (letter == "{") - (letter == "}")
            if depth == 0:
                text = inner[:place]
                break
    text = text.strip().rstrip(".")
    if not text:
        return []
    value = number_of(text)
    return [text] if value is None else [value, text]


def verify_answer(gold, target, *ignored, **options):
    """As `math_verify.verify`: whether any value of the one equals any of the other."""
    golds = gold if isinstance(gold, (list, tuple)) else [gold]
    targets = target if isinstance(target, (list, tuple)) else [target]
    return any(same_answer(one, other) for one in golds for other in targets)


def same_answer(one, other):
    """Equal as numbers to six digits behind the point, or as texts without blanks and case."""
    first, second = number_of(one), number_of(other)
    if first is not None and second is not None:
        return first == second or abs(first - second) < fractions.Fraction(1, 2_000_000)
    return letters_of(one) == letters_of(other)


def letters_of(value):
    """A text without what does not matter."""
    text = DROPPED.sub("", str(value)[:MOST_CHARS]).replace("{", "").replace("}", "")
    return text.casefold()


def number_of(value):
    """The value as a fraction, or None when it is no number."""
    if isinstance(value, (int, float, fractions.Fraction)):
        return fractions.Fraction(value) if math.isfinite(value) else None
    text = DROPPED.sub("", str(value)[:MOST_CHARS])
    text = FRACTION.sub(r"((\1)/(\2))", text)
    text = text.replace("\\cdot", "*").replace("\\times", "*").replace("^", "**")
    percent = text.endswith("%")
    text = text.removesuffix("%").removesuffix("\\")
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    if not text or not re.fullmatch(r"[-+*/().\d]+", text) or len(text) > 200:
        return None
    try:
        number = work_out(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None
    return number / 100 if percent else number


def work_out(node):
    """Value of a tree of plain arithmetic."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return fractions.Fraction(str(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
        value = work_out(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        left, right = work_out(node.left), work_out(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.Div):
            return left / right
        if isinstance(node.op, ast.Pow) and right.denominator == 1 and abs(right) <= 64:
            return left**right
    raise ValueError
