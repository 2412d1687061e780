"""Kinds of devices: what an application may choose."""

from __future__ import annotations

import pytest

from rtvi_sync.media.manager import MediaManager


@pytest.mark.parametrize("wrong", [42, b"bytes", object(), open])
def test_something_else_is_a_type_error(wrong):
    """A choice that is neither None, an id nor an object of the right kind is refused at once, with an example."""
    with pytest.raises(TypeError, match="WavSource"):
        MediaManager(mic=wrong)
    with pytest.raises(TypeError, match="WavSink"):
        MediaManager(speaker=wrong)
    with pytest.raises(TypeError, match="WavSource"):
        MediaManager().select("mic", wrong)
