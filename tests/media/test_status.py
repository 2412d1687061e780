"""The status of devices: a missing device is reported once, and is no failure of the session."""

from __future__ import annotations

import logging

import pytest

from rtvi_sync.media import MediaDeviceInfo, NullSink
from tests.support.slowness import GUARD

pytestmark = pytest.mark.inside


def test_absent_default_devices_are_not_fatal(talk, timer, caplog):
    """Without devices there is one warning and one event, and the session sends and plays nothing."""
    session = talk(mic=None, speaker=None).begin()
    timer.advance(1.0)
    session.hear(bytes(960))
    session.manager.interrupt()
    session.manager.enable_mic(False)
    assert session.chunks == []
    ((event, error),) = session.events
    assert event == "deviceError"
    assert (error.devices, error.type) == (("mic", "speaker"), "not-found")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "There is no sound device by default. To use none, pass mic=" in record.getMessage()
    assert session.manager.stop(1.0) == []


def test_a_missing_microphone_matters_once_it_is_enabled(talk):
    """With enable_mic=False no microphone is reported missing until it is switched on."""
    session = talk(mic=None, enable_mic=False).begin()
    assert session.events == []
    session.manager.enable_mic(True)
    assert [error.devices for _, error in session.events] == [("mic",)]


def test_what_stays_missing_is_logged_once(talk, caplog):
    """A device that stays missing is logged once, unless it was back in between or something else is missing."""
    session = talk(mic=None)

    def logged() -> int:
        session.prepare().manager.stop(GUARD)
        return len(caplog.records)

    counts = [logged(), logged()]
    for speaker in (None, NullSink()):
        session.manager.select("speaker", speaker)
        counts.append(logged())
    session.manager.mic.opened(MediaDeviceInfo(device_id="a", kind="audioinput", label="Microphone"))
    assert [*counts, logged()] == [1, 1, 2, 3, 4]
