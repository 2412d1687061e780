"""The thread that calls a source or sink of the application."""

from __future__ import annotations

import pytest

from rtvi_sync.media import CallbackSource


def test_no_thread_to_be_had(talk, monkeypatch):
    """If the process can start no thread, prepare() raises and the source stays free."""

    def refuse(role, target, *args):
        raise RuntimeError("can't start new thread")

    source = CallbackSource(lambda frames: b"")
    session = talk(mic=source)
    with monkeypatch.context() as patch:
        patch.setattr("rtvi_sync.media.device_thread.start_thread", refuse)
        with pytest.raises(RuntimeError, match="start new thread"):
            session.prepare()
    session.prepare()
