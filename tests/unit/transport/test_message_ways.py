"""Who may send which message, as its docstring says and as both ends of the link enforce it."""

from __future__ import annotations

import re

import pytest

from spade_async.transport.messages import MESSAGES, Message


@pytest.mark.parametrize("record", MESSAGES, ids=lambda record: record.__name__)
def test_the_way_of_a_message_is_the_one_its_docstring_names(record: type[Message]):
    assert record.__doc__ is not None
    said = record.__doc__.replace("(through the coordinator, after its commit)", "")
    way = re.split(r"[.:(]", said)[0]
    writer, *readers = way.split(" -> ")
    assert readers, "say who writes it and who reads it"
    middle = "coordinator" in " ".join(readers[:-1]) or record.__name__ == "WeightsPublished"
    assert record.from_coordinator == (writer.strip() == "Coordinator" or middle)
    assert record.to_coordinator == (writer.strip() != "Coordinator")
