# mypy: ignore-errors
# Untyped: it is read as text and runs in the jail, under the names a program finds there.
"""Runs inside the jail: parses a program's text, repairs what does not parse, lists its imports.

A hostile text can crash or exhaust a parser, so the host never parses one: the text goes to this
trusted program as actions. `inspector.py` is its other side. It is loaded as an environment and
runs nothing of what it reads.

An action is a command, a blank and text: "more" keeps a piece of the source; "read" does so and
looks at the whole; "ours" and "reference" repair as well. The answer is one JSON object.
"""

import ast
import importlib
import json
import re

MOST_TRIES = {"ours": 64, "reference": 20}
MOST_ANSWER_CHARS = 40_000
MOST_IMPORTS = 200
FENCE = re.compile(r"\s*```[ \t]*[A-Za-z0-9_+-]*\s*")
GROUP = re.compile(r"(?<!\{)\{([^{}]+)\}(?!\})")
LITERAL = re.compile(
    r"(?P<prefix>(?<![A-Za-z0-9_])[rRbBfFuU]{1,2})?(?P<quote>'''|\"\"\"|'|\")"
    r"|(?P<comment>\#[^\n]*)"
)
CONVERSION = re.compile(r"\s*=?\s*(?:![rsa])?\s*(?::.*)?", re.DOTALL)
GUARDS = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException")


def problem_of(text):
    """(line, message) of what a parser says against a text, or None."""
    try:
        ast.parse(text)
    except SyntaxError as error:
        return error.lineno or 1, str(error.msg)[:200]
    except (ValueError, RecursionError, MemoryError) as error:
        return 1, f"{type(error).__name__}: {error}"[:200]
    return None


def is_expression(text):
    """Whether a text is a Python expression."""
    try:
        ast.parse("(" + text + "\n)", mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return bool(text.strip())


def repair(text, rule):
    """The text as it parses, and what was done ("fences", "braces"); (None, ()) when it cannot."""
    done = []
    for _ in range(MOST_TRIES[rule]):
        problem = problem_of(text)
        if problem is None:
            return text, tuple(dict.fromkeys(done))
        line = problem[0]
        changed = None
        if rule == "ours":
            changed, kind = without_fence(text, line), "fences"
        if changed is None:
            fix = fix_braces if rule == "ours" else fix_braces_as_the_reference
            changed, kind = fix(text, line), "braces"
        if changed is None or changed == text:
            return None, ()
        text = changed
        done.append(kind)
    return (text, tuple(dict.fromkeys(done))) if problem_of(text) is None else (None, ())


def without_fence(text, line):
    """The text with the fence on that line, or on the line before, made blank; None without one."""
    lines = text.split("\n")
    for at in (line - 1, line - 2):
        if 0 <= at < len(lines) and FENCE.fullmatch(lines[at]):
            lines[at] = ""
            return "\n".join(lines)
    return None


def fix_braces_as_the_reference(text, line):
    """Every brace group of the line whose content is no expression gets doubled braces."""
    lines = text.split("\n")
    if not 0 < line <= len(lines):
        return None
    lines[line - 1] = GROUP.sub(
        lambda m: m.group() if is_expression(m.group(1)) else "{" + m.group() + "}",
        lines[line - 1],
    )
    return "\n".join(lines)


def fix_braces(text, line):
    """The fields that are no expressions get doubled braces, in f-strings that touch the line.

    Nothing else changes: valid fields, with their formats and conversions, stay as they are, and so
    do dict literals outside of f-strings.
    """
    starts = [0]
    for part in text.split("\n"):
        starts.append(starts[-1] + len(part) + 1)
    if not 0 < line < len(starts):
        return None
    first, last = starts[line - 1], starts[line]
    for begin, end in f_strings(text):
        if begin < last and end >= first:
            body = double_bad_fields(text[begin:end])
            if body != text[begin:end]:
                return text[:begin] + body + text[end:]
    return None


def f_strings(text):
    """(begin, end) of the inside of every f-string; an open one runs to the end of its line."""
    at = 0
    while (match := LITERAL.search(text, at)) is not None:
        at = match.end()
        quote = match["quote"]
        if quote is None:
            continue
        begin = at
        while at < len(text) and not text.startswith(quote, at):
            if len(quote) == 1 and text[at] == "\n":
                break
            at += 2 if text[at] == "\\" else 1
        if "f" in (match["prefix"] or "").lower():
            yield begin, min(at, len(text))
        at += len(quote)


def double_bad_fields(body):
    """The inside of an f-string, each field that is none with doubled braces."""
    out, at = [], 0
    while at < len(body):
        letter = body[at]
        if body.startswith(("{{", "}}"), at):
            out.append(body[at : at + 2])
            at += 2
        elif letter == "{":
            end = closing(body, at)
            if end is None:
                out.append("{{")
                at += 1
            elif is_field(body[at + 1 : end]):
                out.append(body[at : end + 1])
                at = end + 1
            else:
                inner = double_bad_fields(body[at + 1 : end])
                out.append("{{" + inner + "}}")
                at = end + 1
        else:
            out.append("}}" if letter == "}" else letter)
            at += 1
    return "".join(out)


def closing(body, start):
    """Place of the brace that closes the one at `start`, or None."""
    depth = 0
    for at in range(start, len(body)):
        depth += (body[at] == "{") - (body[at] == "}")
        if depth == 0:
            return at
    return None


def is_field(content):
    """Whether an f-string takes this between its braces: an expression and what may follow it."""
    if is_expression(content):
        return True
    for at, letter in enumerate(content):
        if letter in "=!:" and is_expression(content[:at]) and CONVERSION.fullmatch(content, at):
            return True
    return False


def imports_of(tree):
    """Modules that a program cannot do without: its imports, but for guarded ones."""
    names = []

    def visit(node):
        if isinstance(node, ast.Import):
            names.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.append(("." * node.level) + (node.module or ""))
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func
            name = getattr(called, "id", getattr(called, "attr", ""))
            if name in ("__import__", "import_module") and isinstance(node.args[0].value, str):
                names.append(node.args[0].value)
        elif isinstance(node, ast.Try) and any(map(guards, node.handlers)):
            for part in (*node.handlers, *node.orelse, *node.finalbody):
                visit(part)
            return
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return list(dict.fromkeys(name[:100] for name in names))[:MOST_IMPORTS]


def guards(handler):
    """Whether an except clause takes a failed import."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or getattr(kind, "id", "") in GUARDS for kind in kinds)


def missing(names):
    """Those of the modules that cannot be imported here."""
    found = []
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:
            found.append(name)
    return found


def edits(before, after):
    """Changed lines, [number from 1, new text]; lines are never added or taken away."""
    pairs = enumerate(zip(before.split("\n"), after.split("\n"), strict=True), 1)
    return [[number, new] for number, (old, new) in pairs if old != new]


class InspectorEnv:
    """The command loop."""

    def reset(self, seed=None):
        """Forget what was sent."""
        self.text = ""
        return "send", {}

    def step(self, action):
        """One command; see the module."""
        command, _, text = action.partition(" ")
        self.text += text
        if command == "more":
            return "more", 0.0, False, False, {}
        answer = self.answer(command)
        told = json.dumps(answer)
        if len(told) > MOST_ANSWER_CHARS:
            told = json.dumps({"error": answer["error"], "repairs": [], "edits": []})
        return told, 0.0, True, False, {}

    def answer(self, command):
        """What there is to say of the text."""
        text, self.text = self.text, ""
        problem = problem_of(text)
        error = None if problem is None else f"line {problem[0]}: {problem[1]}"
        found = {"error": error, "repairs": [], "edits": [], "imports": [], "missing": []}
        if problem is not None and command in MOST_TRIES:
            repaired, done = repair(text, command)
            if repaired is not None:
                found |= {"repairs": list(done), "edits": edits(text, repaired)}
                text, problem = repaired, None
        if problem is None:
            found["imports"] = imports_of(ast.parse(text))
            found["missing"] = missing(found["imports"])
        return found
