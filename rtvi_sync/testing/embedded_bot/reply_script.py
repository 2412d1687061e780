"""A reply of the embedded bot as a timed script: runs of the model, the function between them, and speech. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import attrs

from rtvi_sync.protocol.frames import AudioRawFrame
from rtvi_sync.testing.embedded_bot.bot_version import BotVersion
from rtvi_sync.testing.embedded_bot.functions import CallReports
from rtvi_sync.testing.embedded_bot.reply import Reply
from rtvi_sync.testing.embedded_bot.script import Message, SpeechScript, message, words_of, written
from rtvi_sync.testing.embedded_bot.tones import ReplyAudio

_ERROR: Final = "The model failed"


@attrs.frozen
class AwaitResult:
    """A step that lasts until a function of the client has returned; the times of later steps count from then on."""

    call_id: str


Item: TypeAlias = Message | AudioRawFrame | AwaitResult
# The results of the client's functions by the ids of their calls, as far as they have come.
Results: TypeAlias = Mapping[str, Any] | None
# Seconds after the beginning of the reply, and what is due then. It is sent the results.
Script: TypeAlias = Generator[tuple[float, Item], Results, None]
Voice: TypeAlias = Callable[[str], ReplyAudio]


@attrs.frozen(kw_only=True)
class ReplyScript:
    """What one reply is in a session.

    Attributes:
        reply: the reply.
        bot_version: of the bot.
        speech: makes the messages of the bot's speech.
        voice: makes its audio.
        echo: makes that of the answer, if it is another.
        spoken: False: the user asked for an answer in text.
        mute: True: nothing of the session is spoken.
    """

    reply: Reply
    bot_version: BotVersion
    speech: SpeechScript
    voice: Voice
    echo: Voice | None = None
    spoken: bool = True
    mute: bool = False

    def steps(self) -> Script:
        """Yield the reply in the order and at the pace of a real bot."""
        reply, spoken = self.reply, self.spoken
        if reply.text is None:
            yield from self._filler(reply.after, after_model=False)
            return
        yield 0.0, message("bot-llm-started")
        now = reply.after
        if reply.call is not None:
            now = yield from self._call(reply.call)
            spoken = True  # real bots speak after a function, whatever the user asked for
            yield now, message("bot-llm-started")
        else:
            for due, item in self._filler(0.0, after_model=False):
                yield due, item
                now = max(now, due)
        yield from self._run(now, written(reply.text))
        if not spoken or self.mute:
            for each in self.speech.silent(reply.text):
                yield now, each
        elif words_of(reply.spoken):
            audio = (self.echo or self.voice)(reply.spoken)
            yield from self.speech.spoken(reply.spoken, audio, begin=now, after_model=True)

    def failure(self) -> Script:
        """Yield the same reply of a model that fails."""
        error = message("error", {"error": _ERROR, "fatal": False})
        if self.bot_version.generation == 0:
            yield self.reply.after, error
        yield 0.0, message("bot-llm-started")
        yield from self._run(self.reply.after, ())
        if self.bot_version.generation > 0:
            yield self.reply.after, error

    def _run(self, now: float, texts: Iterable[Message]) -> Iterator[tuple[float, Message]]:
        """Yield the end of a run of the model. Bots of 0.3 tell it twice where nothing was written."""
        texts = list(texts)
        for each in texts:
            yield now, each
        for _ in range(1 if texts or self.bot_version.generation > 0 else 2):
            yield now, message("bot-llm-stopped")

    def _filler(self, begin: float, *, after_model: bool) -> Iterator[tuple[float, Message | AudioRawFrame]]:
        filler = self.reply.filler
        if words_of(filler) and self.spoken and not self.mute:
            yield from self.speech.spoken(filler, self.voice(filler), begin=begin, after_model=after_model)

    def _call(self, call: str | tuple[str, Mapping[str, Any]]) -> Generator[tuple[float, Item], Results, float]:
        """Yield a call of a function, and what is said meanwhile; return when the model runs again."""
        assert not isinstance(call, str)  # the reply has converted it
        reports = CallReports(self.bot_version, self.reply.report_level, *call)
        is_ours = self.reply.result is not None
        end = began = self.reply.after
        for each in self._calling(reports, is_ours=is_ours):
            yield began, each
        returns_at = began + self.reply.seconds if is_ours else math.inf
        results: dict[str, Any] = {reports.call_id: self.reply.result} if is_ours else {}
        is_over = False
        for end, item in self._filler(began, after_model=True):
            results |= (yield end, item) or {}
            if not is_over and ((reports.call_id in results and not is_ours) or end >= returns_at):
                is_over = True
                for each in reports.stopped(results[reports.call_id]):
                    yield end, each
        if is_over:
            return end
        if is_ours:
            end = max(end, returns_at)
        else:
            results |= (yield end, AwaitResult(reports.call_id)) or {}
        for each in reports.stopped(results.get(reports.call_id)):
            yield end, each
        return end

    def _calling(self, reports: CallReports, *, is_ours: bool) -> Iterator[Message]:
        generation = self.bot_version.generation
        request = [reports.request()] if reports.asks and not is_ours else []
        yield from reports.started()
        yield message("bot-llm-stopped")
        yield from request if generation > 1 else ()
        yield from reports.in_progress()
        yield from () if generation > 1 else request
        if generation == 0:
            yield message("bot-llm-stopped")


@attrs.frozen
class CutReply:
    """What a bot still tells of a reply that was interrupted.

    Attributes:
        calls: the end of a function that was running.
        words: the next word of the speech.
        sentences: the next sentence; bots of 2.x announce it with their next speech.
    """

    calls: list[Message] = attrs.field(factory=list)
    words: list[Message] = attrs.field(factory=list)
    sentences: list[Message] = attrs.field(factory=list)


def cut_reply(item: Item, script: Script, *, speaking: bool) -> CutReply:
    """Return what is told of a reply of which this item and the rest of the script are missing."""
    cut = CutReply()
    rest = [item, *(each for _, each in script)]
    types = [each["type"] for each in rest if isinstance(each, dict)]
    is_called = "llm-function-call-started" not in types
    for each in rest:
        if not isinstance(each, dict):
            continue
        kind, data = each["type"], each.get("data", {})
        if kind == "bot-llm-started":
            break
        if kind == "bot-stopped-speaking":
            speaking = False
        if kind == "llm-function-call-stopped" and is_called:
            known = {name: value for name, value in data.items() if name != "result"}
            cut.calls.append(message(kind, {**known, "cancelled": True}))
        elif speaking and kind == "bot-output" and data.get("spoken") is False:
            cut.sentences.append(each)
        elif speaking and kind in ("bot-output", "bot-tts-text") and kind not in [word["type"] for word in cut.words]:
            cut.words.append(each)
    return attrs.evolve(cut, sentences=cut.sentences[:1])
