from __future__ import annotations

import contextlib
import dataclasses
import typing

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spade_async.errors import TransportError
from spade_async.transport import block as block_module
from spade_async.transport import messages
from spade_async.transport.codec import (
    Envelope,
    FrameError,
    checksum,
    decode,
    encode,
    laid_out_fields,
)
from spade_async.transport.fields import SPECS
from spade_async.transport.messages import MESSAGES, Heartbeat, Message, Stop, WeightsLoaded

CAP = 1 << 20
TEXT = st.text(max_size=20) | st.text(st.characters(categories=("Cs", "Ll")), max_size=5)
INTEGER = st.integers(-(2**63), 2**63 - 1)
FLOAT = st.floats(allow_nan=False)
PLAIN = st.recursive(
    st.none() | st.booleans() | INTEGER | FLOAT | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def strategy_of(hint: object) -> st.SearchStrategy[object]:
    simple = {str: TEXT, int: INTEGER, float: FLOAT, bool: st.booleans(), type(None): st.none()}
    if hint in simple:
        return simple[hint]
    if hint is typing.Any:
        return PLAIN
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is np.ndarray:
        dtype = np.dtype(typing.get_args(args[1])[0])
        return st.binary(max_size=40).map(
            lambda raw: np.frombuffer(raw[: len(raw) // dtype.itemsize * dtype.itemsize], dtype)
        )
    if origin is list:
        return st.lists(strategy_of(args[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(TEXT, strategy_of(args[1]), max_size=3)
    return st.one_of([strategy_of(arg) for arg in args])


def message_strategy(record: type[Message]) -> st.SearchStrategy[Message]:
    hints = typing.get_type_hints(record)
    names = [field.name for field in dataclasses.fields(record)]
    return st.fixed_dictionaries({name: strategy_of(hints[name]) for name in names}).map(
        lambda values: record(**values)
    )


MESSAGE = st.one_of([message_strategy(record) for record in MESSAGES])


def is_same(left: Message, right: Message) -> bool:
    if type(left) is not type(right):
        return False
    for field in dataclasses.fields(left):
        a, b = getattr(left, field.name), getattr(right, field.name)
        if isinstance(a, np.ndarray):
            if a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes():
                return False
        elif a != b:
            return False
    return True


def envelope_of(message: Message, **more: object) -> Envelope:
    return Envelope("abcd", message, 1 if message.reliable else 0, **more)


@given(MESSAGE, st.lists(st.tuples(st.integers(0, 9), st.integers(9, 99)), max_size=4))
@settings(max_examples=300, deadline=None)
def test_every_message_comes_back_as_it_was(message, ranges):
    envelope = envelope_of(message, cumulative=7, ranges=tuple(ranges))
    back = decode(encode(envelope, CAP), CAP)
    assert is_same(message, back.message)
    assert (back.sender, back.seq, back.cumulative) == ("abcd", envelope.seq, 7)
    assert back.ranges == tuple(ranges)


@given(MESSAGE, st.data())
@settings(max_examples=300, deadline=None)
def test_any_truncation_or_changed_byte_is_a_frame_error(message, data):
    frames = list(encode(envelope_of(message), CAP))
    which = data.draw(st.sampled_from([i for i in (0, 1) if frames[i]]))
    at = data.draw(st.integers(0, len(frames[which]) - 1))
    if data.draw(st.booleans()):
        frames[which] = frames[which][:at]
    else:
        flipped = frames[which][at] ^ data.draw(st.integers(1, 255))
        frames[which] = frames[which][:at] + bytes([flipped]) + frames[which][at + 1 :]
    with pytest.raises(FrameError):
        decode(frames, CAP)


def sealed(body: bytes, block: bytes = b"") -> tuple[bytes, bytes]:
    """Frames with a right checksum around anything."""
    return checksum(body, block).to_bytes(4, "little") + body, block


@given(st.binary(max_size=60), st.binary(max_size=20))
@settings(max_examples=300, deadline=None)
def test_random_bytes_with_a_right_checksum_are_a_frame_error(body, block):
    with pytest.raises(FrameError):
        decode(sealed(body, block), CAP)


@given(MESSAGE, st.data())
@settings(max_examples=300, deadline=None)
def test_a_header_changed_on_purpose_is_a_message_or_a_frame_error(message, data):
    header, block = encode(envelope_of(message), CAP)
    fields = msgpack.unpackb(header[4:], unicode_errors="surrogatepass")
    shape = st.lists(st.sampled_from([0, 1, 8, 1 << 61]) | INTEGER, max_size=6)
    if fields[7] and data.draw(st.booleans()):
        fields[7] = [data.draw(shape | INTEGER) for _ in fields[7]]
    else:
        fields[data.draw(st.integers(0, 7))] = data.draw(PLAIN)
    body = msgpack.packb(fields, unicode_errors="surrogatepass")
    with contextlib.suppress(FrameError):
        decode(sealed(body, block), CAP)


def fields_of(message: Message) -> list:
    return msgpack.unpackb(encode(envelope_of(message), CAP)[0][4:])


STOP = Stop(reason="done", finish=True)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda f: f.__setitem__(0, "Bomb"), "kind"),
        (lambda f: f.__setitem__(1, messages.SCHEMA + 1), "schema"),
        (lambda f: f[6].pop(), "fields"),
        (lambda f: f[6].append(1), "fields"),
        (lambda f: f.__setitem__(6, {"reason": "done", "finish": True}), "header"),
        (lambda f: f[6].__setitem__(1, 1), "type"),
        (lambda f: f[6].__setitem__(0, None), "type"),
        (lambda f: f.__setitem__(3, 0), "header"),
        (lambda f: f.__setitem__(3, -1), "header"),
        (lambda f: f.__setitem__(5, [3]), "header"),
        (lambda f: f[7].append(1), "fields"),
        (lambda f: f.append(1), "header"),
    ],
)
def test_a_wrong_header_is_refused_with_its_reason(change, code):
    fields = fields_of(STOP)
    change(fields)
    with pytest.raises(FrameError) as caught:
        decode(sealed(msgpack.packb(fields)), CAP)
    assert caught.value.code == code


def batch() -> messages.TrainingBatch:
    return messages.TrainingBatch(
        branch=0,
        step=1,
        sample_ids=["a"],
        roles=["agent"],
        staleness_min=0,
        staleness_max=0,
        checkpoint=True,
        offsets=np.array([0, 3]),
        advantages=np.array([1.0], np.float32),
        staleness=np.array([0]),
        token_ids=np.array([1, 2, 3], np.int32),
        loss_mask=np.array([0, 1, 1], np.uint8),
        generator_logprobs=np.zeros(3, np.float32),
        versions=np.array([-1, 0, 0]),
    )


@pytest.mark.parametrize(
    "size",
    [
        0, 1, 3, 1 << 61, -1, -(1 << 61), True, 1.0, None, "2", {}, [], [1 << 61],
        [1 << 61, 1 << 61], [0, 1 << 61, 1 << 61, 1 << 61], [-1], [-1, -2], [2.0], [True, 2],
        [1, 1, 1, 1, 2],
    ],
)  # fmt: skip
def test_an_array_that_does_not_fit_its_block_is_refused(size):
    header, block = encode(envelope_of(batch()), CAP)
    fields = msgpack.unpackb(header[4:])
    assert fields[7][0] == 2
    fields[7][0] = size
    with pytest.raises(FrameError) as caught:
        decode(sealed(msgpack.packb(fields), block), CAP)
    assert caught.value.code == "block"


@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (0, 5), (1, 2, 1, 3)])
def test_arrays_of_other_dimensions_come_back_as_they_were(shape):
    odd = dataclasses.replace(batch(), advantages=np.full(shape, 2.5, np.float32))
    back = decode(encode(envelope_of(odd), CAP), CAP).message
    assert is_same(back, odd)
    assert not back.advantages.flags.writeable


def test_strided_arrays_are_sent_in_their_order():
    odd = dataclasses.replace(batch(), versions=np.arange(6)[::-2])
    assert is_same(decode(encode(envelope_of(odd), CAP), CAP).message, odd)


def test_types_that_are_settled_once_are_not_settled_for_other_contents():
    # The same types at the top, wrong ones below: each message is looked into.
    good = messages.Welcome(resume={"a": 1})
    for bad in ({"a": b""}, {"a": [{"b": b""}]}, {1: 2}, {"a": {"b": {1: 2}}}):
        assert decode(encode(envelope_of(good), CAP), CAP).message == good
        with pytest.raises(TransportError, match=r"Welcome\.resume"):
            encode(envelope_of(messages.Welcome(resume=bad)), CAP)
        fields = fields_of(good)
        fields[6][1] = bad
        with pytest.raises(FrameError):
            decode(sealed(msgpack.packb(fields)), CAP)


def test_arrays_are_read_only_views_of_the_block():
    frames = encode(envelope_of(batch()), CAP)
    back = decode(frames, CAP).message
    assert isinstance(back, messages.TrainingBatch)
    assert not back.token_ids.flags.writeable
    assert not back.token_ids.flags.owndata
    assert back.token_ids.tolist() == [1, 2, 3]


def test_the_sender_hears_of_a_wrong_field_by_name():
    wrong = dataclasses.replace(batch(), token_ids=np.array([1, 2, 3]))
    with pytest.raises(TransportError, match=r"TrainingBatch\.token_ids is int64, expected int32"):
        encode(envelope_of(wrong), CAP)
    numpy_number = WeightsLoaded(version=np.int64(3), digest="", load_s=0.0, pause_s=0.0)
    with pytest.raises(TransportError, match=r"WeightsLoaded\.version"):
        encode(envelope_of(numpy_number), CAP)
    nested = messages.Welcome(resume={"a": [{"b": b"bytes"}]})
    with pytest.raises(TransportError, match=r"Welcome\.resume"):
        encode(envelope_of(nested), CAP)


def test_a_message_above_the_cap_names_the_key_to_raise():
    big = dataclasses.replace(batch(), token_ids=np.zeros(CAP, np.int32))
    with pytest.raises(TransportError, match=r"link\.max_message_bytes=1048576"):
        encode(envelope_of(big), CAP)
    frames = encode(envelope_of(big), 8 * CAP)
    with pytest.raises(FrameError) as caught:
        decode(frames, CAP)
    assert caught.value.code == "too_large"


def test_nan_metrics_travel():
    beat = Heartbeat(
        name="x", state="", waits_for="", progress=1, oldest_wait_s=0.0,
        metrics={"a": float("nan")},
    )  # fmt: skip
    back = decode(encode(envelope_of(beat), CAP), CAP).message
    assert isinstance(back, Heartbeat)
    assert back.metrics["a"] != back.metrics["a"]


def test_every_record_has_a_specification():
    assert list(SPECS) == [record.__name__ for record in MESSAGES]


def test_arrays_laid_out_are_sent_as_they_lie_and_others_are_copied():
    values = {f.name: getattr(batch(), f.name) for f in dataclasses.fields(batch())}
    laid = messages.TrainingBatch(**laid_out_fields(messages.TrainingBatch, values))
    assert not laid.token_ids.flags.writeable
    _, block = encode(envelope_of(laid), CAP)
    assert np.shares_memory(np.frombuffer(block, np.uint8), laid.token_ids)
    assert encode(envelope_of(laid), CAP) == encode(envelope_of(batch()), CAP)
    assert is_same(decode(encode(envelope_of(laid), CAP), CAP).message, batch())
    # Another array in its place, or the same memory seen otherwise: packed as any other.
    for other in (laid.token_ids[::-1], np.array([4, 5, 6], np.int32)):
        changed = dataclasses.replace(laid, token_ids=other)
        _, block = encode(envelope_of(changed), CAP)
        assert not np.shares_memory(np.frombuffer(block, np.uint8), laid.token_ids)
        assert is_same(decode(encode(envelope_of(changed), CAP), CAP).message, changed)


def test_what_can_still_be_written_to_is_sent_as_it_was():
    message = batch()
    frames = encode(envelope_of(message), CAP)
    message.token_ids[:] = 9
    assert decode(frames, CAP).message.token_ids.tolist() == [1, 2, 3]


def test_nothing_is_remembered_of_arrays_that_are_gone():
    before = len(block_module._LAID_OUT)
    for _ in range(100):
        block_module.lay_out({"a": np.zeros(1000, np.int32)})
    assert len(block_module._LAID_OUT) == before


@pytest.mark.parametrize("size", [1 << 12, (1 << 12) + 8])
def test_a_block_is_covered_by_the_checksum_up_to_4_kib_and_its_length_always(size):
    big = dataclasses.replace(batch(), versions=np.zeros((size - 72) // 8, np.int64))
    header, block = encode(envelope_of(big), CAP)
    assert len(block) == size
    with pytest.raises(FrameError):
        decode([header, block[:-8]], CAP)
    with pytest.raises(FrameError):
        decode([header, block + bytes(8)], CAP)
    changed = bytes([block[0] ^ 1]) + block[1:]
    if size > 1 << 12:
        assert decode([header, changed], CAP).message is not None
    else:
        with pytest.raises(FrameError):
            decode([header, changed], CAP)
