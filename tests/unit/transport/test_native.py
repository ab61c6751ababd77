"""The native codec accepts nothing that the Python one refuses, and says the same of what it does.

`codec.encode` and `codec.decode` ask it first, so every other test of the link tries it as well.
"""

from __future__ import annotations

import itertools

import msgpack
import numpy as np
import pytest

from benches.wire.messages import episode, samples
from benches.wire.mutations import Mutator, sealed
from spade_async.transport.codec import _NATIVE, Envelope, FrameError, _decode, _frames
from spade_async.transport.messages import Credit, Stop, WeightsPublished
from tests.unit.transport.test_codec import is_same

CAP = 1 << 20
EDGES = (0, 1, 31, 32, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**63 - 1)
ORDINARY = [*samples(), episode(3_400, laid_out=False), None]


def native_frames(envelope: Envelope) -> tuple[bytes, bytes] | None:
    return _NATIVE.encode(envelope, CAP, None, None)


def assert_decodes_alike(header: bytes, block: bytes) -> bool:
    found = _NATIVE.decode(header, block, CAP)
    if found is None:
        return False
    expected = _decode(header, block, CAP)
    assert found[:1] + found[2:] == expected[:1] + expected[2:]
    if expected.message is None:
        assert found[1] is None
    else:
        assert is_same(found[1], expected.message)
    return True


@pytest.mark.parametrize("place", range(len(ORDINARY)))
def test_an_ordinary_message_is_the_same_bytes_from_both_codecs(place):
    message = ORDINARY[place]
    seq = 7 if message is not None and message.reliable else 0
    envelope = Envelope("gen-0.1", message, seq, 300, ((302, 303), (70_000, 70_000)), 299)
    frames = native_frames(envelope)
    assert frames == tuple(map(bytes, _frames(envelope, CAP)))
    assert assert_decodes_alike(*frames)


@pytest.mark.parametrize("number", [*EDGES, *(-edge for edge in EDGES if edge)])
def test_every_width_of_a_number_and_of_a_text_is_the_same_from_both(number):
    text = "ä" * min(abs(number), 70_000)
    message = WeightsPublished(
        version=number, location=text, digest="", attestation={"x": [number, -number, text, {}]}
    )
    envelope = Envelope("a", message, 1 + abs(number) // 4)
    frames = native_frames(envelope)
    assert frames == tuple(map(bytes, _frames(envelope, CAP)))
    assert assert_decodes_alike(*frames)


@pytest.mark.parametrize(
    "message",
    [
        Stop(reason="\ud800", finish=True),
        Stop(reason=np.str_("of a subclass"), finish=True),
        Credit(tasks=True),
        Credit(tasks=1 << 64),
        Stop(reason="x" * CAP, finish=True),
        "no message",
    ],
    ids=["no UTF-8", "subclass", "truth for a number", "too wide", "too large", "other class"],
)
def test_what_is_not_ordinary_is_left_to_python(message):
    assert native_frames(Envelope("a", message, 1)) is None


@pytest.mark.parametrize("seed", range(4))
def test_it_accepts_no_hostile_frame_that_python_refuses(seed):
    mutator = Mutator("gen-0.1", samples(), CAP, seed)
    accepted = refused = 0
    for parts in itertools.islice(mutator, 4_000):
        if len(parts) != 2:
            continue
        if assert_decodes_alike(*parts):
            accepted += 1
        else:
            refused += 1
    assert refused > 1_000, "the frames were hostile"


@pytest.mark.parametrize("seed", range(4))
def test_a_header_of_any_plain_values_is_read_alike_or_left(seed):
    """Right checksums around the fields of one message in the place of another's."""
    rng = np.random.default_rng(seed)
    frames = [_frames(Envelope("a", m, int(m.reliable)), CAP) for m in samples()]
    headers = [msgpack.unpackb(header[4:]) for header, _ in frames]
    for _ in range(2_000):
        one, other = rng.choice(len(headers), 2)
        fields = list(headers[one])
        for place in rng.choice(9, rng.integers(1, 3)):
            fields[place] = headers[other][place]
        assert_decodes_alike(*sealed(msgpack.packb(fields), bytes(frames[one][1])))


def test_claims_of_more_items_than_there_are_bytes_take_no_memory():
    for claim in (b"\xdd", b"\xdf", b"\xdb"):
        header, block = sealed(b"\x99" + claim + b"\xff\xff\xff\xff", b"")
        assert _NATIVE.decode(header, block, CAP) is None
        with pytest.raises(FrameError):
            _decode(header, block, CAP)


def test_its_arrays_cannot_be_written_to():
    header, block = _frames(Envelope("a", episode(3_400, laid_out=False), 1), CAP)
    for memory in (bytes(block), memoryview(bytearray(block))):
        found = _NATIVE.decode(header, memory, CAP)
        # A block that the checksum covers is bytes, or Python's.
        if found is not None:
            assert not found[1].token_ids.flags.writeable
    message = episode(34_000, laid_out=False)
    header, block = _frames(Envelope("a", message, 1), CAP)
    found = _NATIVE.decode(header, memoryview(bytearray(block)), CAP)
    assert not found[1].token_ids.flags.writeable
    assert is_same(found[1], message)
