"""A design task for tests of the generator."""

from __future__ import annotations

from spade_async.transport.messages import DesignTask

DESIGN = DesignTask(
    task_id="d-1",
    group_id="g",
    min_version=0,
    skill="s",
    document="d",
    document_id="doc",
    exemplars=[],
    temperature=1.0,
    max_new_tokens=100,
    seed=5,
)
