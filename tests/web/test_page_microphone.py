"""The microphone of a page, whose audio stays in time."""

from __future__ import annotations

import pytest

from rtvi_sync.web.voice import PageMicrophone
from tests.support import limits
from tests.support.talking_page import FRAME, speech

pytestmark = pytest.mark.inside


def test_a_late_microphone_is_caught_up_in_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """While audio waits that is never needed, frames of a pause are dropped, and no frame of speech."""
    limits.patch(monkeypatch, page_mic_window=0.0)
    microphone = PageMicrophone()
    said = speech(0.2)
    for begin in range(0, len(said), FRAME):
        microphone.push(said[begin : begin + FRAME])
    assert microphone.source.waiting_seconds == pytest.approx(0.2)
    for _ in range(50):
        microphone.push(bytes(FRAME))
    assert microphone.source.waiting_seconds == pytest.approx(0.2)
    microphone.push(said[:FRAME])
    assert microphone.source.waiting_seconds == pytest.approx(0.22)


def test_a_microphone_that_is_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The frames of a pause are sent as long as only a few wait; speech that is later than 0.3 s is dropped."""
    limits.patch(monkeypatch, page_mic_window=0.0)
    microphone = PageMicrophone()
    for _ in range(50):
        microphone.push(bytes(FRAME))
    assert 0.03 <= microphone.source.waiting_seconds <= 0.06
    for number in range(50):
        microphone.push(speech(0.02, seed=number))
        assert microphone.source.waiting_seconds <= 0.3
