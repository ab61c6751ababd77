"""The forms in which environments come: which name is taken, how it is made and begun.

Part of the runner. A superset of the contract of the reference's pools (docs/contract.md).
"""

import contextlib
import inspect

SKIPPED = ("Env", "ToolUseBaseEnv")
NO_SEEDS = ("options", "config", "params", "settings", "difficulty", "level")
"""Names of a first parameter of `reset` that does not want the seed."""
SUCCESS = ("success", "is_success")


def find_class(namespace, bad):
    """What makes the environment: the first name that ends in Env, in the order of definition.

    A class or anything that can be called. One that has `reset` and `step` goes before a base class
    or a factory that stands above it. `bad` makes the error when there is none.
    """
    own = []
    for name in reversed(namespace):
        if name == "__builtins__":
            break  # what comes before was there before
        own.append(name)
    first = None
    for name in reversed(own):
        if type(name) is not str or not name.endswith("Env") or name in SKIPPED:
            continue
        found = namespace[name]
        if isinstance(found, type) and hasattr(found, "reset") and hasattr(found, "step"):
            return found
        if first is None and callable(found):
            first = found
    if first is None:
        raise bad("no class whose name ends in Env")
    return first


def construct(found, budget):
    """The environment: called without arguments, or with the turn budget when that is demanded.

    A `max_turns` of its own that is above the budget, or no positive integer, is set to the budget;
    one that is not there stays so.
    """
    try:
        made = found()
    except TypeError as error:
        if error.__traceback__.tb_next is not None:
            raise  # raised inside the constructor, not by the call
        try:
            made = found(max_turns=budget)
        except TypeError as again:
            if again.__traceback__.tb_next is not None:
                raise
            raise error from None  # what it lacks is not the budget
    turns = getattr(made, "max_turns", budget)
    if callable(turns) or (type(turns) is int and 0 < turns <= budget):
        return made
    with contextlib.suppress(AttributeError):  # a property: the caller ends the episode then
        made.max_turns = budget
    return made


def begin(environment, seed):
    """What `reset` returns, whether it takes the seed by name, by place or not at all."""
    method = environment.reset
    try:
        return method(seed=seed)
    except TypeError as error:
        if error.__traceback__.tb_next is not None:
            raise  # raised inside reset, not by the call
    try:
        known = list(inspect.signature(method).parameters.values())
    except (TypeError, ValueError):
        known = []
    if known and known[0].kind in (known[0].POSITIONAL_ONLY, known[0].POSITIONAL_OR_KEYWORD):
        wanted = known[0].default is known[0].empty or known[0].default is None
        if wanted and known[0].name not in NO_SEEDS:
            return method(seed)
    return method()  # chance is seeded all the same


def flag_of(info):
    """What `info` says of success, as the detail of a reply: "success", "no success" or ""."""
    for name in SUCCESS:
        value = dict.get(info, name)
        if value is True or value is False:
            return "success" if value else "no success"
    return ""
