"""Playback of the bot's replies, on one thread while the bot speaks."""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import attrs

from rtvi_sync.concurrency.clock import monotonic
from rtvi_sync.concurrency.lifecycle import start_thread
from rtvi_sync.concurrency.lock import new_lock
from rtvi_sync.concurrency.logs import package_logger
from rtvi_sync.errors import DisconnectedError
from rtvi_sync.protocol.frames import AudioRawFrame, InterruptionFrame, MessageFrame
from rtvi_sync.testing.embedded_bot.audio import ReplyAudio, Utterance, echo, tones
from rtvi_sync.testing.embedded_bot.messages import Message, Messenger, message
from rtvi_sync.testing.embedded_bot.options import BotOptions
from rtvi_sync.testing.embedded_bot.reply import FaultKind, FaultPlan, LLMContext, Reply
from rtvi_sync.testing.embedded_bot.reply_script import (
    AwaitResult,
    CutReply,
    ReplyScript,
    Script,
    SpeechScript,
    Voice,
    cut_reply,
    words_of,
)
from rtvi_sync.testing.embedded_bot.session import BotSession

logger: logging.Logger = package_logger(__name__)

_TONES_HZ: Final = 24000
# Queue to a reply's thread: the id of a call and its result, or None to stop. Not a SimpleQueue: in Python 3.10, its
# get() with a short limit may never return.
_Signals: TypeAlias = "queue.Queue[tuple[str, Any] | None]"


class ReplyPlayer:
    """A player of the bot's replies in one session, one at a time. Any thread may call it.

    Args:
        session: Session that sends the audio.
        messenger: Sender of the messages.
        context: Conversation that the bot replies to.
        options: Options of the bot.
        fault_plan: Faults to inject.
    """

    def __init__(
        self,
        session: BotSession,
        messenger: Messenger,
        context: LLMContext,
        options: BotOptions,
        fault_plan: FaultPlan,
    ) -> None:
        self._session = session
        self._messenger = messenger
        self._context = context
        self._options = options
        self._fault_plan = fault_plan
        self._segment_ids = itertools.count(1, 100)
        self._output_rate = options.audio_out_sample_rate_hz
        self._input_rate: int | None = None
        # Serializes starts and stops of replies. Threads of the session and its actions hold it until the reply that
        # they stop has ended; a reply's own thread never takes it.
        self._lock = new_lock()
        self._thread: threading.Thread | None = None
        self._signals: _Signals = queue.Queue()
        self._speaking = False
        self._cut = CutReply()
        # Messages about interrupted replies, by the type of message that they follow.
        self._late: dict[str, list[Message]] = {}

    def set_input_rate(self, sample_rate: int) -> None:
        """Note the rate of the user's audio. The first rate becomes the bot's, unless the bot already has one."""
        self._input_rate = self._input_rate or sample_rate

    def interrupt(self, *, typed: bool) -> None:
        """Stop the current reply and report the interruption. Like real bots, report it even if the bot was silent.

        Args:
            typed: True if the user typed. Bots of 1.x then report the end of their speech when the next reply starts.
        """
        with self._lock:
            self._stop()
            cut, self._cut = self._cut, CutReply()
            stopped = [message("bot-stopped-speaking")] if self._speaking else []
            self._speaking = False
            # The version that introduced the message also introduced the frame. Telephone calls always have the frame.
            if self._messenger.bot_version.sends("bot-interrupted") or self._session.call is not None:
                self._session.send_frame(InterruptionFrame())
                self._messenger.emit("bot-interrupted")
                self._send([*cut.calls, *cut.words, *stopped])
                if cut.sentences:
                    self._late["bot-started-speaking"] = cut.sentences
            elif typed:
                self._late["user-llm-text"] = cut.calls
                self._late["bot-llm-started"] = [*cut.words, *stopped]
            else:
                self._send([*cut.calls, *stopped])

    def stop_speaking(self) -> None:
        """Stop the current reply, and report only the end of the speech."""
        with self._lock:
            self._stop()
            self._cut = CutReply()
            if self._speaking:
                self._speaking = False
                self._messenger.emit("bot-stopped-speaking")

    def stop(self) -> None:
        """Stop the current reply without a message."""
        with self._lock:
            self._stop()

    def wait(self) -> None:
        """Block until the current reply ends, if there is one."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def respond(self, utterance: Utterance | None = None, *, spoken: bool = True) -> None:
        """Run the language model on the context and play its reply.

        Args:
            utterance: Audio of the user's last message, if it was spoken and has just ended. In this case, an exception
                of the application's `replies` is a failure of the model, because no message waits for an answer.
            spoken: False for a text-only reply.
        """
        said = self._context.said
        fault = self._fault_plan.ask(said)
        try:
            reply = self._context.run(said)
        except Exception:
            if utterance is None:
                raise
            logger.exception("The reply to speech failed")
            reply, fault = Reply(""), "error"
        acknowledgement = [message("user-llm-text", {"text": said})]
        if utterance is not None and self._messenger.bot_version.generation > 0:
            at = 1 if self._messenger.bot_version.generation > 1 else 0
            acknowledgement.insert(at, message("user-stopped-speaking"))
        echoed = None
        if utterance is not None and self._options.echo:
            echoed = partial(_echo, utterance, self._choose_output_rate())
        self._begin(self._script(reply, echoed, spoken=spoken), acknowledgement, fault)

    def greet(self) -> None:
        """Play the bot's greeting, if it has one."""
        greeting = self._options.greeting
        if greeting is not None:
            reply = Reply(greeting) if isinstance(greeting, str) else greeting
            self._context.add("assistant", reply.text or reply.filler)
            self._begin(self._script(reply))

    def say(self, text: str) -> None:
        """Speak a text that the language model did not write."""
        self._begin(self._script(Reply(filler=text)))

    def take_result(self, call_id: str, result: Any) -> None:
        """Note the result of a client's function."""
        self._signals.put((call_id, result))

    def _script(self, reply: Reply, echoed: Voice | None = None, *, spoken: bool = True) -> ReplyScript:
        version, rate = self._messenger.bot_version, self._choose_output_rate()
        route = self._session.eval_route
        if route is not None and isinstance(reply.call, tuple):
            reply = attrs.evolve(reply, report_level=route.report_level(reply.call[0], reply.report_level))
        return ReplyScript(
            reply=reply,
            bot_version=version,
            speech=SpeechScript(version.generation, self._messenger.generation, next(self._segment_ids)),
            voice=lambda text: tones(words_of(text), rate),
            echo=echoed,
            spoken=spoken,
            mute=route is not None and bool(route.flags.get("skip_tts")),
        )

    def _begin(
        self, script: ReplyScript, acknowledgement: Sequence[Message] = (), fault: FaultKind | None = None
    ) -> None:
        with self._lock:
            self._stop()
            self._cut = CutReply()
            self._send(acknowledgement)
            if script.reply.text is None:
                self._send(self._late.pop("bot-llm-started", ()))
            self._signals = queue.Queue()
            self._thread = start_thread("bot-turn", self._play, script, self._signals, fault)

    def _stop(self) -> None:
        if self._thread is not None:
            self._signals.put(None)
            # The join ensures that nothing of the old reply follows the next message. The signal ends the thread's
            # waits. Its sends end when the client reads or the connection is cut.
            self._thread.join()
            self._thread = None

    def _choose_output_rate(self) -> int:
        """Return the bot's rate, which is chosen when it first speaks and then never changes."""
        self._output_rate = self._output_rate or self._input_rate or _TONES_HZ
        return self._output_rate

    def _play(self, script: ReplyScript, signals: _Signals, fault: FaultKind | None) -> None:
        """Send a reply in real time, with a fault; runs on the reply's own thread."""
        is_heard = script.spoken and not script.mute and words_of(script.reply.filler + script.reply.spoken)
        faulty = "bot-tts-text" if is_heard else "bot-llm-text"
        steps = script.failure() if fault == "error" else script.steps()
        with contextlib.suppress(DisconnectedError):
            for item in self._in_time(steps, signals, pace=2.0 if fault == "slow" else 1.0):
                if isinstance(item, AudioRawFrame):
                    self._session.send_frame(item)
                    continue
                self._send([item])
                if item["type"] == faulty and fault is not None:
                    self._strike(fault)
                    if fault == "stall":
                        return
                    fault = None
            if fault is not None:
                self._strike(fault)

    def _in_time(self, script: Script, signals: _Signals, pace: float) -> Iterator[Message | AudioRawFrame]:
        """Yield the items as they become due, until the end or a signal to stop."""
        began, results = monotonic(), dict[str, Any]()
        step = next(script, None)
        while step is not None:
            due, item = step[0] * pace, step[1]
            is_awaited = isinstance(item, AwaitResult)
            while not (isinstance(item, AwaitResult) and item.call_id in results):
                try:
                    signal = signals.get(timeout=None if is_awaited else max(0.0, began + due - monotonic()))
                except queue.Empty:
                    break
                if signal is None:
                    self._cut = cut_reply(item, script, speaking=self._speaking)
                    return
                results[signal[0]] = signal[1]
            if isinstance(item, AwaitResult):
                began = monotonic() - due
            else:
                yield item
            try:
                step = script.send(results)
            except StopIteration:
                return

    def _strike(self, fault: FaultKind) -> None:
        if fault == "drop":
            self._session.drop()
        elif fault == "close":
            self._session.close()
        elif fault == "malformed":
            no_json = '{"label": "rtvi-ai", "type": '
            if self._session.call is None:
                self._session.send_frame(MessageFrame(data=no_json))
            else:
                self._session.send_raw(no_json)

    def _send(self, messages: Iterable[Message]) -> None:
        """Send messages, and after each the remaining reports of interrupted replies."""
        for each in messages:
            kind = each["type"]
            if kind in ("bot-started-speaking", "bot-stopped-speaking"):
                self._speaking = kind == "bot-started-speaking"
            self._messenger.send(each)
            for late in self._late.pop(kind, ()):
                self._messenger.send(late)


def _echo(utterance: Utterance, sample_rate: int, text: str) -> ReplyAudio:
    return echo(utterance, words_of(text), sample_rate)
