"""What the runner makes of values and exceptions: part of the runner.

A reply is a tuple (outcome code, text, reward or None, terminated, truncated, detail).

Rules for values, the same on every run:
* observation: `str`, without lone surrogates; `reset` may return it bare or with an info dict.
* reward: bool (as 0 or 1), int, float, Fraction, Decimal, or a real number type (numpy scalars);
  not str, None, complex or arrays. NaN, infinities and what overflows a float are refused;
  -0.0 becomes 0.0.
* terminated, truncated: bool, a numpy bool, or the integers 0 and 1.
* step returns a tuple of exactly five; info is a dict and is not sent out.
"""

import decimal
import dis
import math
import numbers

if False:  # for readers and linters: it is above in the same text
    from breaches import limit_of

FINISHED, EXCEPTION, BAD_VALUE, OVER_MEMORY, REFUSED_CALL = 0, 1, 2, 4, 6
FILE = "<environment>"
REFUSED_ERRNOS = (1, 13, 38)  # EPERM, EACCES, ENOSYS
RAISES = (dis.opmap["RAISE_VARARGS"], dis.opmap["RERAISE"])


class Bad(Exception):
    """The contract forbids this value."""


def type_name(value):
    """Name of a value's type, past whatever its metaclass says."""
    return type.__dict__["__name__"].__get__(type(value))[:80]


def shape(value):
    """A value's type, and the types in it when it is a tuple."""
    if type(value) is tuple:
        return "(" + ", ".join(type_name(item) for item in value[:8]) + ")"
    return type_name(value)


def as_text(value, what):
    """An exact str that can be sent."""
    if not isinstance(value, str):
        raise Bad(f"{what} must be a str, got {type_name(value)}")
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Bad(f"{what} holds a lone surrogate") from None
    return text


def as_reward(value):
    """A finite float by the rule of this module."""
    if not isinstance(value, (numbers.Real, decimal.Decimal)):
        raise Bad(f"reward must be a number, got {type_name(value)}")
    try:
        number = float(value) + 0.0
    except OverflowError:
        raise Bad("reward overflows a float") from None
    if not math.isfinite(number):
        raise Bad(f"reward is {number}")
    return number


def as_flag(value, what):
    """An exact bool by the rule of this module."""
    if value is True or value is False:
        return value
    if type(value) is int and value in (0, 1):
        return value == 1
    if type_name(value) in ("bool_", "bool"):
        return bool(value)
    raise Bad(f"{what} must be a bool, got {type_name(value)}")


def failed(where, error):
    """The reply for whatever escaped: its kind, a bounded message, the environment's own lines."""
    if type(error) is Bad:
        return (BAD_VALUE, "", None, False, False, f"in {where}: {error}")
    lines, last, depth = [], None, 0
    trace = error.__traceback__
    while trace is not None and depth < 100_000:
        code = trace.tb_frame.f_code
        if code.co_filename == FILE:
            lines.append(f"line {trace.tb_lineno} in {code.co_name[:60]}")
            del lines[:-6]
        last, trace, depth = trace, trace.tb_next, depth + 1
    try:
        text = str(error)
        text = str.__str__(text)[:600] if isinstance(text, str) else ""
        text = text.encode("utf-8", "replace").decode()
    except BaseException:
        text = "<no message>"
    if isinstance(error, SyntaxError) and error.filename == FILE:
        lines = [f"line {error.lineno}"]
        text = str(error.msg)[:200]
    detail = f"in {where}: {type_name(error)}: {text}"
    if lines:
        detail += " (" + ", ".join(lines) + ")"
    kind, limit = judged(error, last)
    return (kind, "", None, False, False, detail + limit)


def judged(error, last):
    """Kind of what was raised, and what names the limit if that is what it was.

    An exception raised by hand is neither a limit nor a refused call.
    """
    if not isinstance(error, (MemoryError, OSError, RuntimeError)):
        return EXCEPTION, ""
    code = last.tb_frame.f_code if last is not None else None
    if code is not None and code.co_filename == FILE and code.co_code[last.tb_lasti] in RAISES:
        return EXCEPTION, ""
    if isinstance(error, MemoryError):
        return OVER_MEMORY, ""  # the host knows the limit
    if isinstance(error, OSError) and error.errno in REFUSED_ERRNOS:
        return REFUSED_CALL, ""
    return EXCEPTION, limit_of(error, code)
