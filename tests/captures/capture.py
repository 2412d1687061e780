"""Captures sessions with a real bot of Pipecat: writes `logs/VERSION/SCENARIO.jsonl`.

    python -m tests.captures.capture 1.14.0 pipecat-1.14.0/bin/python [SCENARIO ...]

The Python is from an environment with this version of Pipecat: see tests/pipecat/README.md. A log has one JSON array a
line: `[seconds, "in" or "out", message]`, `[seconds, "audio", seconds of sound]` for each received stretch of audible
sound, and `[seconds, "end", initiator]`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import httpx

from rtvi_sync import Event, RTVIClient, RTVIEvent, RTVIMessage, WebSocketTransport
from rtvi_sync.client.message_builders import text_messages
from rtvi_sync.media import CallbackSource, NullSink
from rtvi_sync.media.pcm import rms

from .logs import LOGS
from .scenarios import SCENARIOS, Scenario

_BOTS = Path(__file__).parents[1] / "pipecat" / "bots"
_RATE_HZ = 16_000
_VOICE = b"\x00\x20\x00\xe0" * 160  # 20 ms that are loud
_AUDIBLE = 100.0
_PAUSE = 0.1  # between two stretches of sound
_PATIENCE = 60.0
_ENVIRONMENT = {**os.environ, "LOGURU_LEVEL": "WARNING", "RTVI_BOT_ENDS_WITH_STDIN": "1"}
# They say nothing about turns. Of each kind the first two are kept.
_MEASUREMENTS = {"metrics", "bot-audio-level", "user-audio-level", "system-log"}


class _RecordedTransport(WebSocketTransport):
    """Notes each message to send, before the bot can answer it."""

    def __init__(self, rows: list[list[Any]]) -> None:
        super().__init__()
        self._rows = rows

    def send_message(self, message: RTVIMessage) -> None:
        self._rows.append([time.monotonic(), "out", _compact(message)])
        super().send_message(message)


class _Voice:
    """The user's voice: silence, unless it is to speak."""

    def __init__(self) -> None:
        self._loud = 0
        self.source = CallbackSource(self._read, _RATE_HZ)

    def speak(self, seconds: float) -> None:
        self._loud = int(seconds * _RATE_HZ)

    def _read(self, frames: int) -> bytes:
        time.sleep(frames / _RATE_HZ)  # not ahead of time
        loud, self._loud = min(frames, self._loud), max(0, self._loud - frames)
        return (_VOICE * (loud // 320 + 1))[: 2 * loud] + bytes(2 * (frames - loud))


class _Capture:
    """One session."""

    def __init__(self, base_url: str, scenario: Scenario) -> None:
        self._base_url = base_url
        self._scenario = scenario
        self._rows: list[list[Any]] = []
        self._voice = _Voice()
        self._seen = Counter[str]()
        self._last = 0.0
        self._came = threading.Condition()
        self._results: dict[str, Any] = {}
        self._client = RTVIClient(
            transport=_RecordedTransport(self._rows),
            params={"base_url": base_url},
            connect_timeout=_PATIENCE,
            mic=self._voice.source,
            speaker=NullSink(),
        )

    def run(self) -> list[list[Any]]:
        """Return the events so far, with monotonic seconds."""
        httpx.post(f"{self._base_url}/script", json=self._scenario.bot, trust_env=False).raise_for_status()
        client = self._client
        client.register_function_call_handler(None, lambda call: self._results.get(call.function_name, {}))
        with client.events() as events:
            taking = threading.Thread(target=self._take_all, args=(events,))
            taking.start()
            ready = client.connect()
            hearing = threading.Thread(target=self._hear)
            hearing.start()
            self._is_old = ready.version.startswith("0.")
            for kind, value in self._scenario.steps:
                if not client.connected:
                    break
                getattr(self, f"_{kind}")(value)
            client.disconnect()
            taking.join()
            hearing.join()
        return self._rows

    def _take_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self._take(event)

    def _take(self, event: Event) -> None:
        with self._came:
            if event.type is RTVIEvent.DISCONNECTED:
                self._rows.append([event.received_at, "end", event.data.initiator])
            elif event.message is not None:
                self._seen[event.message.type] += 1
                if event.message.type not in _MEASUREMENTS:
                    self._last = time.monotonic()
                if event.message.type not in _MEASUREMENTS or self._seen[event.message.type] <= 2:
                    self._rows.append([event.received_at, "in", _compact(event.message)])
            self._came.notify_all()

    def _hear(self) -> None:
        begun = ended = 0.0
        for frame in self._frames():
            if rms(frame.pcm) < _AUDIBLE:
                continue
            if frame.timestamp > ended + _PAUSE:
                if begun:
                    self._rows.append([begun, "audio", round(ended - begun, 2)])
                begun = frame.timestamp
            ended = frame.timestamp + frame.duration
            self._last = time.monotonic()
        if begun:
            self._rows.append([begun, "audio", round(ended - begun, 2)])

    def _frames(self) -> Iterator[Any]:
        audio = self._client.tracks().bot.audio
        return iter(audio.frames() if audio is not None else ())

    # -- steps --------------------------------------------------------------------------------------------------------

    def _type(self, value: Any) -> None:
        text, aloud = (value["text"], value["aloud"]) if isinstance(value, dict) else (value, True)
        ways = text_messages(text, audio_response=aloud, llm_service="llm")
        self._seen.clear()
        self._client.send_message(ways[-1 if self._is_old else 0])

    def _note(self, text: str) -> None:
        self._client.send_text(text, run_immediately=False)

    def _speak(self, seconds: float) -> None:
        self._seen.clear()
        self._voice.speak(seconds)

    def _until(self, value: Any) -> None:
        name, count = value if isinstance(value, tuple) else (value, 1)
        with self._came:
            if not self._came.wait_for(lambda: self._seen[name] >= count or not self._client.connected, _PATIENCE):
                raise TimeoutError(f"no {name}")

    def _wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def _quiet(self, seconds: float) -> None:
        self._last = time.monotonic()
        while self._client.connected and (left := self._last + seconds - time.monotonic()) > 0:
            time.sleep(left)

    def _control(self, value: tuple[str, Any]) -> None:
        name, params = value
        with contextlib.suppress(httpx.ReadTimeout):  # of Pipecat 0.0.73, which may never end
            httpx.post(f"{self._base_url}/{name}", json=params, trust_env=False, timeout=2).raise_for_status()

    def _answer(self, value: tuple[str, Any]) -> None:
        self._results[value[0]] = value[1]


def _compact(message: RTVIMessage) -> dict[str, Any]:
    return {name: value for name, value in message.to_dict().items() if name != "label"}


def _start(version: str, python: str) -> tuple[Popen[bytes], str]:
    program = "scripted_0_3.py" if version == "0.0.73" else "scripted.py"
    process = Popen([python, str(_BOTS / program)], stdin=PIPE, stdout=PIPE, env=_ENVIRONMENT)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["base_url"]


def _write(version: str, name: str, rows: list[list[Any]]) -> None:
    rows.sort(key=lambda row: row[0])
    begin = rows[0][0]
    path = LOGS / version / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps([round(at - begin, 4), *rest], separators=(",", ":"), ensure_ascii=False) for at, *rest in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(version: str, python: str, *names: str) -> None:
    process, base_url = _start(version, python)
    try:
        for name in names or SCENARIOS:
            if version in SCENARIOS[name].versions:
                _write(version, name, _Capture(base_url, SCENARIOS[name]).run())
                sys.stdout.write(f"{version} {name}\n")
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
