"""Event files for TensorBoard without torch or TensorFlow, always over the learner step.

One writer per run (the coordinator's). On a resume the writer opens with a SessionLog START event:
TensorBoard then drops what older files hold at or after that step, so the curves continue instead
of doubling back.
"""

from __future__ import annotations

import html
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.custom_scalar import metadata as custom_scalar_metadata
from tensorboard.plugins.histogram import metadata as histogram_metadata
from tensorboard.plugins.hparams import summary_v2 as hparams_summary
from tensorboard.plugins.scalar import metadata as scalar_metadata
from tensorboard.plugins.text import summary_v2 as text_summary
from tensorboard.util import tensor_util

from spade_async.telemetry.alerts import Alert
from spade_async.telemetry.event_file import EventFile
from spade_async.telemetry.layout import layout
from spade_async.telemetry.metrics import find

FLUSH_S = 5.0
"""Longest time an event stays in memory."""
RING = 8
"""Number of slots for the newest environments."""
_MAX_TEXT_CHARS = 20_000


class EventWriter:
    """Writes scalars, histograms and texts of one run into one event file.

    Example::

        writer = EventWriter(folder.tensorboard, purge_step=state.step + 1)
        writer.scalars(12, {"regret/mean": 0.08, "solve/no_hint": None})
    """

    def __init__(self, folder: Path, purge_step: int | None = None) -> None:
        """Open a new event file.

        Args:
            folder: created when it is not there.
            purge_step: first learner step that will be written again on a resume (the surviving
                step + 1); None for a new run.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._file = EventFile(folder, FLUSH_S)
        # First in the file. A new run has one as well, because TensorBoard takes the first START of
        # a folder as the beginning and purges from the second.
        self.purge(purge_step or 0)
        self._add(purge_step or 0, _layout_summary())
        self._environments = 0
        self._closed = False

    def purge(self, step: int) -> None:
        """What was written at or after that step is of an undone past: readers drop it here."""
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._file.add(event_pb2.Event(wall_time=time.time(), step=step, session_log=start))

    def scalars(self, step: int, values: Mapping[str, float | None]) -> None:
        """Write one point per tag; None and non-finite values leave a gap.

        Raises:
            ValueError: a tag that is not in the catalog.
        """
        summary = summary_pb2.Summary()
        for tag, value in values.items():
            description = _known(tag)
            if value is None or not math.isfinite(value):
                continue
            # A simple value, not the tensor of summary_v2: every reader knows it, and the ones that
            # do not purge tensors (EventAccumulator) purge it.
            metadata = scalar_metadata.create_summary_metadata(None, description)
            summary.value.add(tag=tag, simple_value=float(value), metadata=metadata)
        if summary.value:
            self._add(step, summary)

    def histogram(self, step: int, tag: str, values: Sequence[float]) -> None:
        """Write the distribution of values; an empty one is a gap.

        Raises:
            ValueError: a tag that is not in the catalog.
        """
        description = _known(tag)
        data = np.asarray(values, dtype=np.float64).ravel()
        data = data[np.isfinite(data)]
        if data.size:
            self._add(step, _histogram_summary(tag, data, description))

    def text(self, step: int, tag: str, markdown: str) -> None:
        """Write a text that is rendered as Markdown, cut at 20,000 characters.

        Raises:
            ValueError: a tag that is not in the catalog.
        """
        description = _known(tag)
        clean = markdown[:_MAX_TEXT_CHARS].encode("utf-8", "replace").decode("utf-8")
        self._add(step, text_summary.text_pb(tag, clean, description))

    def environment(
        self, step: int, *, source: str, hint: str | None, transcript: str, note: str = ""
    ) -> None:
        """Show one new environment in the ring of text tags ``environments/0..7``.

        What was played comes before the source: TensorBoard shows only the top of a long text
        before one has to scroll. All texts are untrusted: they are escaped and shown as written,
        never as Markdown.
        """
        blocks = [f"<p><strong>{_escaped(note, 500)}</strong></p>"] if note else []
        for title, body, limit in (
            ("hint", hint, 2_000),
            ("transcript", transcript, 8_000),
            ("source", source, 8_000),
        ):
            shown = "(none)" if body is None else _escaped(body, limit)
            blocks.append(f"<p><strong>{title}</strong></p>\n\n<pre>{shown}</pre>")
        self.text(step, f"environments/{self._environments % RING}", "\n\n".join(blocks))
        self._environments += 1

    def alerts(self, step: int, alerts: Sequence[Alert]) -> None:
        """Write the alerts since the last step as one list; nothing when there are none."""
        lines = [f"* **{_escaped(a.kind, 60)}** {_escaped(str(a), 1_000)}" for a in alerts]
        if lines:
            self.text(step, "run/alerts", "\n".join(lines))

    def hparams(self, values: Mapping[str, Any]) -> None:
        """Write the configuration for the HPARAMS tab; values that are not plain become strings."""
        plain = {
            key: value if isinstance(value, bool | int | float | str) else str(value)
            for key, value in values.items()
        }
        self._add(0, hparams_summary.hparams_pb(plain))

    def flush(self) -> None:
        """Put everything written so far on disk; what finds no room there is written later."""
        self._file.flush()

    @property
    def file_name(self) -> str:
        """Name of the open event file."""
        return self._file.path.name

    def flush_if_due(self) -> None:
        """Flush when the last one is `FLUSH_S` ago; call about once a second."""
        if not self._closed:
            self._file.flush_if_due()

    def close(self) -> None:
        """Flush and close; harmless when done twice."""
        if not self._closed:
            self._closed = True
            self._file.close()

    def _add(self, step: int, summary: summary_pb2.Summary) -> None:
        self._file.add(event_pb2.Event(wall_time=time.time(), step=step, summary=summary))


def _known(tag: str) -> str:
    metric = find(tag)
    if metric is None:
        raise ValueError(f"metric {tag!r} is not in the catalog: name it in telemetry/metrics.py")
    return f"{metric.text} Unit: {metric.unit}. X-axis: {metric.axis}."


def _escaped(text: str, limit: int) -> str:
    # Cut after escaping: a text that grows must not push the closing tag over the limit of
    # `text()`, or the rest of it would be read as Markdown (which can load images).
    shown = html.escape(text, quote=False)
    return shown if len(shown) <= limit else f"{shown[:limit]}\n... (cut)"


def _layout_summary() -> summary_pb2.Summary:
    # The plugin's own helper imports TensorFlow.
    summary = summary_pb2.Summary()
    summary.value.add(
        tag=custom_scalar_metadata.CONFIG_SUMMARY_TAG,
        metadata=custom_scalar_metadata.create_summary_metadata(),
        tensor=tensor_util.make_tensor_proto(layout().SerializeToString(), dtype=np.object_),
    )
    return summary


def _range_of(data: NDArray[np.float64]) -> tuple[float, float]:
    """Where the buckets begin and end: numpy refuses values a few roundings apart."""
    low, high = float(data.min()), float(data.max())
    largest = max(abs(low), abs(high))
    if high - low > max(1e-9 * largest, 1e-300):
        return low, high
    # As numpy does for equal values.
    pad = max(0.5, 1e-6 * largest)
    return low - pad, high + pad


def _histogram_summary(
    tag: str, data: NDArray[np.float64], description: str
) -> summary_pb2.Summary:
    counts, edges = np.histogram(data, bins=30, range=_range_of(data))
    # [30, 3] rows of (left edge, right edge, count), the plugin's format.
    buckets = np.stack([edges[:-1], edges[1:], counts.astype(np.float64)], axis=1)
    summary = summary_pb2.Summary()
    summary.value.add(
        tag=tag,
        metadata=histogram_metadata.create_summary_metadata(None, description),
        tensor=tensor_util.make_tensor_proto(buckets, dtype=np.float64),
    )
    return summary
