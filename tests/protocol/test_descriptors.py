"""Classes of protobuf messages that are built from descriptions of their fields."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pool

from rtvi_sync.protocol.descriptors import DecodeError, build

pytestmark = pytest.mark.inside

FIELDS = {"Text": "id:uint64 text:string note?:string", "Audio": "pcm:bytes rate:uint32"}
Frame = build("test_descriptors", FIELDS, "Frame", {"text": "Text", "audio": "Audio"})


def test_fields_are_numbered_in_their_order() -> None:
    """The first field has the number 1, and the wire has the bytes that a compiled class would write."""
    frame = Frame()
    frame.text.id = 3
    frame.text.text = "a"
    assert frame.SerializeToString() == b"\x0a\x05\x08\x03\x12\x01a"
    assert Frame.FromString(frame.SerializeToString()) == frame


def test_one_kind_at_a_time() -> None:
    """The kinds are a oneof: setting one removes the other."""
    frame = Frame()
    frame.text.text = "a"
    frame.audio.rate = 16000
    assert frame.WhichOneof("kind") == "audio"
    assert not frame.HasField("text")


def test_a_question_mark_makes_a_field_optional() -> None:
    """An optional field tells absence from emptiness."""
    frame = Frame()
    frame.text.note = ""
    assert frame.text.HasField("note")
    assert not Frame().text.HasField("note")
    with pytest.raises(ValueError, match="text"):
        frame.text.HasField("text")


def test_bytes_that_are_no_message() -> None:
    """The error of damaged bytes is the one that is exported."""
    with pytest.raises(DecodeError):
        Frame.FromString(b"\x0a\xff")


def test_the_pool_of_the_process_is_left_alone() -> None:
    """A server framework may register the same file and package: nothing is added to the default pool."""
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("test_descriptors.Frame")
