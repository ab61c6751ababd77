from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator as PluginAccumulator,
)
from tensorboard.plugins.custom_scalar import layout_pb2

from spade_async.telemetry.tensorboard import EventWriter


def read(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    events.Reload()
    return events


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    return [(e.step, e.value) for e in read(folder).Scalars(tag)]


def shown(folder: Path, tag: str) -> list[int]:
    """Steps of a series as TensorBoard itself reads them."""
    events = PluginAccumulator(str(folder))
    events.Reload()
    return [e.step for e in events.Tensors(tag)]


def test_scalars_are_read_back_over_the_learner_step(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    writer.scalars(1, {"regret/mean": 0.5, "mix/family/mod": 0.25})
    writer.scalars(2, {"regret/mean": 0.75})
    writer.close()
    assert scalars(tmp_path, "regret/mean") == [(1, 0.5), (2, 0.75)]
    assert scalars(tmp_path, "mix/family/mod") == [(1, 0.25)]


def test_missing_and_non_finite_values_leave_a_gap(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    writer.scalars(1, {"regret/mean": None, "solve/no_hint": math.nan, "learner/loss": 1.0})
    writer.close()
    assert read(tmp_path).Tags()["scalars"] == ["learner/loss"]


def test_unknown_tag_is_refused(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    with pytest.raises(ValueError, match="regret/medium"):
        writer.scalars(1, {"regret/medium": 1.0})
    with pytest.raises(ValueError, match="notes"):
        writer.text(1, "notes", "x")
    writer.close()


def test_resume_purges_the_steps_that_are_written_again(tmp_path: Path) -> None:
    first = EventWriter(tmp_path)
    for step in range(1, 6):
        first.scalars(step, {"regret/mean": float(step)})
        first.text(step, "environments/0", "old")
    first.close()
    second = EventWriter(tmp_path, purge_step=4)
    for step in range(4, 7):
        second.scalars(step, {"regret/mean": float(10 * step)})
    second.close()
    assert scalars(tmp_path, "regret/mean") == [(1, 1), (2, 2), (3, 3), (4, 40), (5, 50), (6, 60)]
    assert shown(tmp_path, "regret/mean") == [1, 2, 3, 4, 5, 6]
    assert shown(tmp_path, "environments/0") == [1, 2, 3]


def test_ring_holds_the_newest_environments_as_escaped_text(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    for step in range(9):
        writer.environment(
            step, source=f"x = {step}  # <b>", hint=None, transcript="a < b", note="family=mod"
        )
    writer.close()
    events = read(tmp_path)
    slots = [tag for tag in events.Tags()["tensors"] if tag.startswith("environments/")]
    assert len(slots) == 8
    newest = events.Tensors("environments/0")[-1]
    text = newest.tensor_proto.string_val[0].decode()
    assert newest.step == 8
    assert "x = 8  # &lt;b&gt;" in text
    assert "(none)" in text


@pytest.mark.filterwarnings("ignore:html5lib:DeprecationWarning")
def test_a_hostile_environment_is_never_read_as_markdown(tmp_path: Path) -> None:
    from tensorboard.plugin_util import markdown_to_safe_html

    hostile = "<" * 9_000 + "\n\n</pre>\n\n![x](http://a.example/x.png)\n\n"
    image = "![x](http://a.example/x.png) **b**"
    writer = EventWriter(tmp_path)
    writer.environment(1, source=hostile, hint=image, transcript=hostile, note=image)
    writer.close()
    (event,) = read(tmp_path).Tensors("environments/0")
    shown = markdown_to_safe_html(event.tensor_proto.string_val[0].decode())
    assert "<img" not in shown
    assert shown.count("<pre>") == shown.count("</pre>") == 3
    assert "**b**" in shown
    assert "(cut)" in shown


def test_histogram_counts_every_value(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    writer.histogram(1, "hist/regret", [0.0, 0.5, 1.0, math.nan])
    writer.histogram(2, "hist/regret", [])
    writer.close()
    (event,) = read(tmp_path).Tensors("hist/regret")
    from tensorboard.util import tensor_util

    assert tensor_util.make_ndarray(event.tensor_proto)[:, 2].sum() == 3


@pytest.mark.parametrize(
    "values", [[0.5, 0.5 + 2**-53], [1e300, 1e300 * (1 + 2**-52)], [0.0, 5e-324], [-1.0, -1.0]]
)
def test_values_a_few_roundings_apart_have_a_histogram(tmp_path: Path, values: list[float]) -> None:
    # numpy refuses a range that 30 buckets cannot divide; it ended a run whose regrets were alike.
    writer = EventWriter(tmp_path)
    writer.histogram(1, "hist/regret", values)
    writer.close()
    (event,) = read(tmp_path).Tensors("hist/regret")
    from tensorboard.util import tensor_util

    left, right, count = tensor_util.make_ndarray(event.tensor_proto).T
    assert count.sum() == 2
    assert left[0] < min(values) <= max(values) < right[-1]
    assert (left < right).all()


def test_layout_and_hparams_are_in_the_file(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    writer.hparams({"learner.lr": 1e-4, "designer.skills": ("A",), "async.staleness": None})
    writer.close()
    events = read(tmp_path)
    (event,) = events.Tensors("custom_scalars__config__")
    layout = layout_pb2.Layout.FromString(event.tensor_proto.string_val[0])
    assert {category.title for category in layout.category} >= {"Off-policy", "Speed"}
    assert "_hparams_/session_start_info" in events.Tags()["tensors"]


def test_texts_with_lone_surrogates_do_not_break_the_writer(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    writer.environment(1, source="\ud800", hint="h", transcript="t")
    writer.close()
    assert read(tmp_path).Tensors("environments/0")


def test_writer_needs_neither_torch_nor_tensorflow(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from spade_async.telemetry.tensorboard import EventWriter\n"
        f"w = EventWriter(Path({str(tmp_path)!r})); w.scalars(1, {{'regret/mean': 1.0}})\n"
        "w.hparams({'a': 1}); w.histogram(1, 'hist/regret', [1.0]); w.close()\n"
        "assert not {'torch', 'tensorflow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
