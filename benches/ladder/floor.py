"""The unsafe floor: the same source in this very process, without any isolation."""

from __future__ import annotations

import collections
import copy
import functools
import heapq
import itertools
import json
import math
import operator
import random
import re
import statistics
import string
import time
from typing import Any

from benches.ladder.plan import Plan
from benches.ladder.row import Row, absent
from benches.ladder.workload import moves

_NAMES = {
    module.__name__: module
    for module in (collections, copy, functools, heapq, itertools, json, math, operator, random,
                   re, statistics, string)
}  # fmt: skip


def made(source: str) -> Any:
    """The environment of a trusted source, constructed here."""
    namespace: dict[str, Any] = dict(_NAMES)
    exec(compile(source, "<environment>", "exec", dont_inherit=True), namespace)
    return next(value for name, value in namespace.items() if name.endswith("Env"))()


def rows(plan: Plan) -> list[Row]:
    """Compiling, first reply and step of the source in this process."""
    labels = {
        "inprocess_us.compile": "in this process: compile the source",
        "inprocess_us.first_reply": "in this process: source to first reply",
        "inprocess_us.step": "in this process: step",
    }
    if plan.own_source:
        reason = "left out: your own source runs only in a jail"
        return [absent(key, label, reason) for key, label in labels.items()]
    environment = made(plan.source)
    environment.reset(7)

    def compiled() -> list[float]:
        begun = time.perf_counter()
        compile(plan.source, "<environment>", "exec", dont_inherit=True)
        return [(time.perf_counter() - begun) * 1e6]

    def first_reply() -> list[float]:
        begun = time.perf_counter()
        made(plan.source).reset(7)
        return [(time.perf_counter() - begun) * 1e6]

    def steps() -> list[float]:
        environment.reset(7)
        times = []
        for text in moves(25):
            begun = time.perf_counter()
            environment.step(text)
            times.append((time.perf_counter() - begun) * 1e6)
        return times

    makers = dict(zip(labels, (compiled, first_reply, steps), strict=True))
    return [Row(key, label, makers[key]) for key, label in labels.items()]
