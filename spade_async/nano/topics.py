"""Grounding of the nano designer: a document becomes one lower-case word, its topic.

Words that name a family's subject pull the design towards that family (softly: the warm start
pairs them in most, not all, cases); any other word leaves the family open.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from spade_async.seeds import derive

KEYWORDS = MappingProxyType(
    {
        "add": ("add", "plus", "append", "increment"),
        "sub": ("subtract", "minus", "difference", "delta"),
        "mul": ("multiply", "product", "times", "factor"),
        "mod": ("remainder", "modulo", "divide", "modulus"),
        "max": ("max", "largest", "maximum", "greatest"),
        "min": ("min", "smallest", "minimum", "least"),
        "sum": ("sum", "total", "accumulate", "amount"),
        "reverse": ("reverse", "reversed", "backwards", "mirror"),
        "sort": ("sort", "sorted", "order", "ordered"),
        "count": ("count", "occurrences", "counter", "frequency"),
        "nth": ("index", "position", "offset", "item"),
        "sequence": ("sequence", "next", "series", "iterator"),
    }
)
"""Topic words of each family."""

TOPIC_WORDS = tuple(word for words in KEYWORDS.values() for word in words)

MAX_TOPIC_LETTERS = 11
"""Longer words are cut, so that a designer prompt stays within 16 tokens."""

_FAMILY_OF = {word: family for family, words in KEYWORDS.items() for word in words}
_WORD = re.compile(r"[a-z]{3,}")
_MAX_DOCUMENT_CHARACTERS = 20_000


def topic(document: str, skill: str) -> str:
    """The topic word of a document: the same for the same document and skill.

    Half of the documents that mention a family's keyword give such a word (families equally
    likely), all others any of their words; a document without words gives "anything".
    """
    words: list[str] = _WORD.findall(document[:_MAX_DOCUMENT_CHARACTERS].lower())
    if not words:
        return "anything"[:MAX_TOPIC_LETTERS]
    pick = derive(0, "nano-topic", skill, document[:_MAX_DOCUMENT_CHARACTERS])
    keywords = [word for word in words if word in _FAMILY_OF]
    if keywords and pick % 2 == 0:
        families = sorted({_FAMILY_OF[word] for word in keywords})
        family = families[pick // 2 % len(families)]
        words = [word for word in keywords if _FAMILY_OF[word] == family]
    word: str = words[pick // 1024 % len(words)]
    return word[:MAX_TOPIC_LETTERS]
