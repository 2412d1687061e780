"""Recordings as `client.record()` leaves them, written without a session: a conversation by script, at set moments."""

from __future__ import annotations

import json
import math
import wave
from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

FRAME = 0.02
_LETTERS_A_SECOND = 15


@lru_cache(maxsize=8)
def _speech(pitch_hz: int, rate_hz: int, count: int) -> array[int]:
    """Return a tone that swells like syllables."""
    step = 2 * math.pi / rate_hz
    return array(
        "h",
        (
            int(
                12_000
                * math.sin(pitch_hz * step * n)
                * abs(math.sin(2.7 * step * n))
                * (0.55 + 0.45 * math.sin(0.9 * step * n))
            )
            for n in range(count)
        ),
    )


class Script:
    """A conversation that is being written down. Its methods take and give seconds since the recording started.

    Args:
        folder: where the files will be.
        name: of the files, without a suffix.
        rate_hz: of the audio.
        audio: whether there is a WAV file.
    """

    def __init__(self, folder: Path, name: str = "talk", *, rate_hz: int = 8000, audio: bool = True) -> None:
        self.path = folder / f"{name}.jsonl"
        self.now = 0.2
        self._rate = rate_hz
        self._audio = audio
        self._sides = {"out": array("h"), "in": array("h")}
        self._rows: list[dict[str, Any]] = []
        self._number = 0
        about = {"library": "pipecat-ai", "library_version": "1.14.0"}
        self.row("bot", 0.1, rtvi="2.2.0", about=about, capabilities={})
        if audio:
            self.row("wav", 0.1, file=self.path.with_suffix(".wav").name, rate_hz=rate_hz)

    def row(self, kind: str, moment: float | None = None, /, **values: Any) -> None:
        """Write a row down, by default at the present moment."""
        self._rows.append({"t": round(self.now if moment is None else moment, 4), "kind": kind, **values})

    def receive(self, type_: str, moment: float | None = None, /, **data: Any) -> None:
        """Write a message of the bot down."""
        message: dict[str, Any] = {"label": "rtvi-ai", "type": type_, "data": data}
        self.row("message", moment, dir="in", message=message)

    def send(self, type_: str, **data: Any) -> None:
        """Write a message of the client down."""
        self._number += 1
        message = {"label": "rtvi-ai", "type": type_, "id": f"m{self._number}", "data": data}
        self.row("message", dir="out", message=message)

    def sound(self, direction: str, start: float, seconds: float) -> None:
        """Write speech of one side down."""
        if not self._audio:
            return
        side, begin, count = self._sides[direction], round(start * self._rate), round(seconds * self._rate)
        side.extend([0] * (begin - len(side)))
        side.extend(_speech(110 if direction == "out" else 180, self._rate, count))
        for done in range(0, count, self._rate):
            n = min(self._rate, count - done)
            at, frames = start + done / self._rate, max(1, round(n / self._rate / FRAME))
            values = {"dir": direction, "rate_hz": self._rate, "at": begin + done, "n": n, "frames": frames}
            self.row("audio", at, until=round(at + (frames - 1) * FRAME, 4), **values)

    def turn(
        self,
        question: str,
        answer: str,
        *,
        spoken: bool = True,
        wait: float = 0.8,
        calls: Sequence[tuple[str, Mapping[str, Any], Any]] = (),
        heard: float = 1.0,
        error: str = "",
    ) -> None:
        """Write a turn down: the user's words, the bot's wait, its calls and its answer.

        Args:
            question, answer: the words of both; "" as the question: the bot starts; as the answer: it says nothing.
            spoken: the user speaks; else types.
            wait: seconds from the end of the question to the first sound of the answer.
            calls: functions that the bot calls: name, arguments and result.
            heard: the share of the answer after which the user interrupts the bot.
            error: the bot's report instead of the rest of its answer.
        """
        if question and spoken:
            length = max(0.6, len(question) / _LETTERS_A_SECOND)
            self.receive("user-started-speaking", self.now + 0.12)
            self.sound("out", self.now, length)
            self.now += length
            self.receive("user-stopped-speaking", self.now + 0.3 * wait)
            self.receive(
                "user-transcription", self.now + 0.4 * wait, text=question, final=True, user_id="u", timestamp=""
            )
        elif question:
            self.send("send-text", content=question, options={"run_immediately": True, "audio_response": True})
        stopped = self.now
        self.now = stopped + 0.5 * wait
        if question:
            self.receive("user-llm-text", text=question)
        self.receive("bot-llm-started")
        for number, (name, arguments, result) in enumerate(calls):
            call = {"function_name": name, "tool_call_id": f"c{self._number}{number}"}
            self.receive("llm-function-call-in-progress", args=arguments, **call, arguments=arguments)
            self.now += 0.35
            self.receive("llm-function-call-stopped", **call, cancelled=False, result=result)
            self.now += 0.05
        if calls:
            self.receive("bot-llm-stopped")
            self.now += 0.01
            self.receive("bot-llm-started")
        if answer:
            self._answer(answer, max(stopped + wait, self.now + 0.1), heard)
        if error:
            self.receive("error", error=error, fatal=False)
            self.now += 0.05
        if not answer:
            self.receive("bot-llm-stopped")
        self.now += 0.9

    def _answer(self, answer: str, start: float, heard: float) -> None:
        words = answer.split(" ")
        for word in words:
            self.receive("bot-llm-text", start - 0.1, text=f"{word} ")
        self.receive("bot-llm-stopped", start - 0.05)
        self.receive("bot-tts-started", start - 0.04)
        self.receive("bot-started-speaking", start)
        length = len(answer) / _LETTERS_A_SECOND
        for number, word in enumerate(words):
            if number < heard * len(words):
                self.receive("bot-tts-text", start + length * number / len(words), text=word)
        self.sound("in", start, heard * length)
        self.now = start + heard * length
        if heard < 1.0:
            self.receive("bot-interrupted")
            self.row("interruption", dropped=round((1 - heard) * length * self._rate))
        self.receive("bot-stopped-speaking", self.now + 0.01)
        self.receive("bot-tts-stopped", self.now + 0.02)

    def write(self, *, is_cut: bool = False, error: str | None = None) -> Path:
        """Write the files, and return the path of the rows."""
        head = {"kind": "head", "format": "rtvi-recording", "version": 1, "wall": "2026-11-28T06:00:00.000000Z"}
        head |= {"library": "rtvi_sync 0.2.0", "session": 1, "url": "ws://127.0.0.1:8765/ws?token=***"}
        if not is_cut:
            code, initiator = (1011, "server") if error else (1000, "client")
            self.row("end", self.now, code=code, initiator=initiator, error=error)
        rows = [head, *sorted(self._rows, key=lambda row: row["t"])]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        self.path.write_text(text[:-20] if is_cut else text, "utf-8")
        if self._audio and any(self._sides.values()):
            self._write_wav()
        return self.path

    def _write_wav(self) -> None:
        length = max(map(len, self._sides.values()))
        stereo = array("h", bytes(4 * length))
        for channel, side in enumerate(self._sides.values()):
            stereo[channel::2] = side + array("h", bytes(2 * (length - len(side))))
        with wave.open(str(self.path.with_suffix(".wav")), "wb") as file:
            file.setnchannels(2)
            file.setsampwidth(2)
            file.setframerate(self._rate)
            file.writeframes(stereo.tobytes())


HOSTILE = (
    "<img src=x onerror=\"document.title='broken in'\">",
    "<script>document.title='broken in'</script>",
    "</script><svg onload=\"document.title='broken in'\">",
    "<!--<script> ]]> -->\n\nand --> a blank line",
    "{{ 7 * 7 }} [[script]] [[data]] &lt;b&gt; \" ' ` ${1}"
    " \u2028\u202e txet desrever \u202c \x00\x1b[31m \\u003cb\\u003e",
    "half of a pair \ud800 and " + "one word without a blank " * 3 + "a" * 400,
)
"""Texts that break out of pages, files and terminals which take them as markup."""


def a_talk(folder: Path, name: str = "talk", **options: Any) -> Script:
    """Return a conversation of several kinds of turns, which is not yet written."""
    script = Script(folder, name, **options)
    script.turn("", "Hello, this is the pizza line. What can I get for you?", wait=0.5)
    script.turn(
        "Do you have a table for four on Friday?",
        "Yes. Friday at seven works for a table of four.",
        wait=0.9,
        calls=[("check_availability", {"day": "Friday", "party_size": 4}, {"free": ["19:00", "20:30"]})],
    )
    script.turn(
        "Please book it.",
        "It is booked. You will get a message with all the details, and a number to call if your plans change.",
        wait=0.7,
        heard=0.45,
    )
    script.turn("What is the address?", "Twelve Harbour Street, next to the old fish market.", wait=0.85, spoken=False)
    script.row("mark", text="expect() failed: voice to voice within 1.5 s")
    script.turn(
        "And how do I get there by bus?",
        "Take the 14 to the harbour, and walk two minutes.",
        wait=2.6,
        calls=[("plan_route", {"to": "Twelve Harbour Street", "by": "bus"}, {"line": 14})],
    )
    script.row("lost", side="out", seconds=0.28, why="slow_server")
    script.turn("Thank you, bye.", "", wait=0.6, error="LLM service: rate limit exceeded, retry after 20 s")
    return script


def an_hour(folder: Path) -> Path:
    """Write an hour of talk, and return the path of the rows."""
    script = Script(folder, "hour")
    while script.now < 3600:
        script.turn("Do you have a table for four on Friday?", "Yes. Friday at seven works for a table of four. " * 3)
    return script.write()
