"""Limits of the package that tests shorten: the one place that knows where each of them is."""

from __future__ import annotations

import contextlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

# The plain name of each limit, and where the package has it. All are in seconds, unless they say otherwise.
_PLACES = {
    "teardown": "rtvi_sync.session.session.EndLimits.TEARDOWN",  # the promise of `disconnect()`
    "stop": "rtvi_sync.session.session.EndLimits.STOP",  # how long it waits for an attempt that it has stopped
    "exit": "rtvi_sync.concurrency.lifecycle.EXIT_LIMIT",  # of the wait for all sessions at the interpreter's exit
    "idle_worker": "rtvi_sync.concurrency.worker_pool.IDLE_TIMEOUT",  # how long a thread without work stays
    "config": "rtvi_sync.client.connect_steps._CONFIG_TIMEOUT",  # for a bot to send its config, without a limit
    "reminder": "rtvi_sync.client.connect_steps._REMINDER_INTERVAL",  # between two warnings without a limit
    "no_thread_pause": "rtvi_sync.session.session.NO_THREAD_PAUSE",  # before the end of a session asks for one again
    "hint": "rtvi_sync.session.connect_request._HINT_TIMEOUT",  # for a server to list its endpoints
    "contended_wait": "rtvi_sync.media.devices.speaker._CONTENDED_WAIT",  # until a speaker beside busy threads reopens
    "hearing": "rtvi_sync.conversation.ask._HEARING_LIMIT",  # how long a bot may not have heard a question
    "notebook_flush": "rtvi_sync.notebook.live._FLUSH_TIMEOUT",  # for the last output at the end
    "function_calls": "rtvi_sync.session.function_calls.MAX_RUNNING",  # how many run at once: a number
    "late_answers": "rtvi_sync.protocol.pending_requests._MAX_UNAWAITED",  # how many answers may be pending: a number
    "contract": "rtvi_sync.testing.transport_contract.LIMIT",  # how long the contract of transports waits
    "contract_rig": "rtvi_sync.testing.contract_rig.LIMIT",
    "contract_settle": "rtvi_sync.testing.transport_contract._SETTLE",  # how long it waits until leftovers are gone
    "sending_share": "rtvi_sync.session.session.EndLimits.SENDING_SHARE",  # the part in which messages may leave
    # networks
    "grace": "rtvi_sync.net.dial._GRACE",  # a wait that was aborted ends this much later by itself
    "http_reason": "rtvi_sync.net.http._REASON_TIMEOUT",  # for the text of a refusal
    "next_address": "rtvi_sync.net.dial._ATTEMPT_DELAY",  # until another address is tried as well
    "polite_close": "rtvi_sync.transports.websocket_base._POLITE_CLOSE_TIMEOUT",  # for the bot's answer to a close
    "fragments": "rtvi_sync.transports.websocket_frames._MAX_FRAGMENTS",  # a count
    "write_slice": "rtvi_sync.transports.websocket_writer._TIME_SLICE",  # how long one connection may write on end
    "write_chunk": "rtvi_sync.transports.websocket_writer._CHUNK_BYTES",  # bytes
    "read_slice": "rtvi_sync.transports.websocket_connection._TIME_SLICE",  # how long one connection may read on end
    # WebRTC
    "rtc_ping": "rtvi_sync.transports.webrtc.connection._PING_INTERVAL",
    "rtc_close": "rtvi_sync.transports.webrtc.connection._CLOSE_TIMEOUT",
    "rtc_impolite_close": "rtvi_sync.transports.webrtc.connection._IMPOLITE_TIMEOUT",
    "rtc_waiting": "rtvi_sync.transports.webrtc.connection._MAX_WAITING",  # bytes of messages before the session starts
    "rtc_silence": "rtvi_sync.transports.webrtc.connection.SILENCE_LIMIT",  # without a packet
    "rtc_polite_close": "rtvi_sync.transports.webrtc.aiortc_peer._POLITE_CLOSE_TIMEOUT",
    "rtc_stall": "rtvi_sync.transports.webrtc.aiortc_peer._STALL_TIMEOUT",  # a bot takes nothing more at the end
    "rtc_message": "rtvi_sync.transports.webrtc.connection._MAX_MESSAGE",  # bytes
    "consent_interval": "rtvi_sync.transports.webrtc.aiortc_consent._INTERVAL",
    "consent": "rtvi_sync.transports.webrtc.aiortc_consent.LIMIT",  # without an answer to ICE
    "turn_head_start": "rtvi_sync.transports.webrtc.aiortc_turn._HEAD_START",  # of a server that is named earlier
    "turn": "rtvi_sync.transports.webrtc.aiortc_turn._PATIENCE",  # for the answers of all servers
    # devices
    "source_end": "rtvi_sync.media.slot.END_TIMEOUT",  # for a source or a sink that another session used
    "wav_file": "rtvi_sync.media.sources.MAX_WAV_FILE_BYTES",
    "wav_data": "rtvi_sync.media.pcm.MAX_WAV_DATA_BYTES",
    "device_probe": "rtvi_sync.media.devices.device_probe.LIMIT",  # of the process that lists devices
    "device_call": "rtvi_sync.media.devices.portaudio.LIMIT",  # of a call of PortAudio
    "picture_lag": "rtvi_sync.media.video._MAX_LAG",  # a longer one counts as a stop of the process
    "alsa_devices": "rtvi_sync.media.devices.audio_errors._ALSA_DEVICES",  # a folder
    "jack_registries": "rtvi_sync.media.devices.audio_errors._JACK_REGISTRIES",  # a folder
    "restart_close": "rtvi_sync.media.devices.portaudio._CLOSE_FOR_RESTART_LIMIT",
    "restart_age": "rtvi_sync.media.devices.portaudio._MIN_RESTART_AGE",
    "speaker_close": "rtvi_sync.media.devices.speaker._CLOSE_TIME",
    # conversations
    "user_lead": "rtvi_sync.conversation.audio._USER_LEAD",  # how long the user's speech is remembered
    "unawaited": "rtvi_sync.protocol.pending_requests._MAX_UNAWAITED",  # a count
    # tools
    "talk_answer": "rtvi_sync.cli.talk_session._ANSWER_TIMEOUT",  # until the next line of a pipe is sent
    "levels_tick": "rtvi_sync.cli.devices._TICK",
    "page_silence": "rtvi_sync.web.voice_page._SILENCE",  # after which a page that talks counts as gone
    "page_mic_window": "rtvi_sync.web.voice._MIC_WINDOW",  # in which a delay of the microphone must be needed
    "page_socket": "rtvi_sync.web.websocket._SOCKET_TIMEOUT",  # for data that a page does not read
    "event_log": "rtvi_sync.web.event_log._MAX_LOG_BYTES",  # bytes
    "scenario_end": "rtvi_sync.testing.load.many._END_TIMEOUT",
    "load_line": "rtvi_sync.testing.load.progress._LINE_INTERVAL",  # from one line of the progress to the next
    "proxy_pause": "rtvi_sync.testing.fault_injection.fault_proxy._PAUSE",  # after an accept() that failed
    "server_pause": "rtvi_sync.testing.embedded_bot.server._PAUSE",
    # threads
    "deadline_slice": "rtvi_sync.concurrency.deadline._SLICE",  # the longest wait at once
    "idle_end": "rtvi_sync.concurrency.lifecycle._IDLE_LIMIT",  # for idle threads to end
    "idle_runtime": "rtvi_sync.concurrency.runtime.IDLE_TIMEOUT",  # how long the threads of no session stay
    "worker_min_idle": "rtvi_sync.concurrency.worker_pool._MIN_IDLE_TIME",
    "worker_round": "rtvi_sync.concurrency.worker_pool._ROUND",
    "shield_leave": "rtvi_sync.concurrency.shield._LEAVE_TIMEOUT",
    "check_descriptors": "rtvi_sync.concurrency.io_thread._MOST_DESCRIPTORS",  # a count
}


def value_of(name: str) -> Any:
    """Return the value of a limit."""
    return pkgutil.resolve_name(_PLACES[name])


def patch(monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
    """Change limits until the test ends, or undoes its patches."""
    for name, value in limits.items():
        monkeypatch.setattr(_PLACES[name], value)


def change(**limits: Any) -> dict[str, Any]:
    """Change limits for good, in a process of its own; return the previous ones."""
    before = {}
    for name, value in limits.items():
        owner_name, _, constant = _PLACES[name].rpartition(".")
        owner = pkgutil.resolve_name(owner_name)  # a module, or a class
        before[name] = getattr(owner, constant)
        setattr(owner, constant, value)
    return before


@contextlib.contextmanager
def changed(**limits: Any) -> Iterator[None]:
    """Change limits in the block, or for the test whose fixture this is."""
    before = change(**limits)
    try:
        yield
    finally:
        change(**before)


@pytest.fixture
def limits() -> Iterator[Callable[..., None]]:
    """Return a function that changes limits, by name, until the end of the test."""
    with contextlib.ExitStack() as stack:
        yield lambda **values: stack.enter_context(changed(**values))
