"""Frames as objects; tests/protocol/test_wire.py tests their bytes on the wire."""

from __future__ import annotations

import pytest

from rtvi_sync.protocol.frames import AudioRawFrame, TextFrame, encode

pytestmark = pytest.mark.inside


def test_wrong_types_are_named() -> None:
    """A value of the wrong type, or something that is no frame, raises TypeError that says which."""
    with pytest.raises(TypeError, match=r"text\.text"):
        encode(TextFrame(text=None))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dict is not a frame class"):
        encode({})  # type: ignore[arg-type]


def test_repr_of_audio_is_short() -> None:
    """A frame of audio in a log line shows its size, not its samples."""
    assert "<96000 bytes>" in repr(AudioRawFrame(audio=bytes(96000), sample_rate=48000))
