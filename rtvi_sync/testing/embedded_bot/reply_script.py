"""A reply as a timed script: runs of the model, the function between them, and speech. Pure."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import attrs

from rtvi_sync.protocol.frames import AudioRawFrame
from rtvi_sync.testing.embedded_bot.audio import ReplyAudio
from rtvi_sync.testing.embedded_bot.messages import BotVersion, CallReports, Message, message
from rtvi_sync.testing.embedded_bot.reply import Reply

# -- speech -----------------------------------------------------------------------------------------------------------

CHUNK: Final = 0.04
_HEAD_START_CHUNKS: Final = 1
# Seconds between the last audio and the report in which bots of RTVI 0.3 end their speech.
_OLD_STOP_DELAY: Final = 0.35

# Seconds since the start of the turn, and the message or audio due then.
Step: TypeAlias = tuple[float, Message | AudioRawFrame]
# Seconds since the start of the speech, and the messages due then.
Cue: TypeAlias = tuple[float, list[Message]]


def words_of(reply: str) -> list[str]:
    """Return the spoken words of `reply`, without spaces."""
    return reply.split()


def sentences_of(reply: str) -> list[str]:
    """Return the sentences of `reply`, which together hold all of its words."""
    return [sentence.strip() for sentence in re.split(r"(?<=[.!?])\s+", reply) if sentence.strip()]


@attrs.frozen(kw_only=True)
class Segment:
    """One sentence of a reply, as `bot-output` reports it.

    Attributes:
        id: `segment_id`, the same in all reports of the sentence; None for bots of RTVI 1.x, which have none.
        text: The sentence.
    """

    id: int | None
    text: str

    def announced(self, *, will_be_spoken: bool) -> Message:
        """Build the report of the complete sentence, before any of it is spoken."""
        progress = {"accumulated_text": "", "remaining_text": self.text}
        return self._output(
            "sentence",
            self.text,
            spoken=False,
            will_be_spoken=will_be_spoken,
            spoken_status="new",
            spoken_progress=progress if will_be_spoken else None,
        )

    def progress(self, spoken: str) -> Message:
        """Build the report of the speech's progress: `spoken` is the text up to the end of the current word."""
        rest = self.text[len(spoken) :]
        return self._output(
            "sentence",
            self.text,
            will_be_spoken=True,
            spoken_status="in-progress" if rest else "completed",
            spoken_progress={"accumulated_text": spoken, "remaining_text": rest},
        )

    def word(self, word: str) -> Message:
        """Build the report of the current word, for clients that don't know progress reports."""
        return self._output("word", word, spoken=True, will_be_spoken=False, spoken_status="new")

    def _output(self, kind: str, text: str, **more: Any) -> Message:
        if self.id is None:
            return message("bot-output", {"text": text, "spoken": more["spoken"], "aggregated_by": kind})
        data = {"text": text, "output_type": kind, "text_type": kind, "aggregated_by": kind, "segment_id": self.id}
        return message("bot-output", data | {name: value for name, value in more.items() if value is not None})


def written(reply: str) -> Iterator[Message]:
    """Yield the messages that the language model sends while it writes a reply."""
    for number, sentence in enumerate(sentences_of(reply)):
        for token in re.findall(r"\s*\S+", sentence if number == 0 else f" {sentence}"):
            yield message("bot-llm-text", {"text": token})
        yield message("bot-transcription", {"text": sentence})


class SpeechScript:
    """The messages and audio of the bot's speech in one session.

    Args:
        bot_generation: Generation of the bot: 0, 1 or 2.
        generation: Generation of the client's protocol: 0, 1 or 2.
        first_id: `segment_id` of the first sentence.
    """

    def __init__(self, bot_generation: int, generation: int, first_id: int) -> None:
        self._generation = generation
        self._ids: Iterator[int | None] = itertools.repeat(None) if bot_generation == 1 else itertools.count(first_id)

    def silent(self, text: str) -> Iterator[Message]:
        """Yield the messages for a text that is not spoken. Bots before RTVI 2.0 send none."""
        for segment in self._segments(text):
            if segment.id is not None:
                yield segment.announced(will_be_spoken=False)

    def spoken(self, text: str, speech: ReplyAudio, *, begin: float, after_model: bool) -> Iterator[Step]:
        """Yield speech: audio in complete chunks in real time, and each word at its time.

        Args:
            text: At least one word.
            speech: Audio of the words.
            begin: Seconds since the start of the turn.
            after_model: False if no run of the language model precedes the speech.
        """
        chunk_bytes = _chunk_bytes(speech)
        cues = self._cues(self._segments(text), speech)
        cue = next(cues, None)
        yield begin, message("bot-tts-started")
        if self._generation == 0:
            yield begin, message("bot-tts-stopped")
        for index in range(_chunks(speech)):
            due = begin + _due(index)
            audio = speech.pcm[index * chunk_bytes : (index + 1) * chunk_bytes].ljust(chunk_bytes, b"\0")
            # A real bot's first audio precedes all reports of the speech.
            yield due, AudioRawFrame(audio=audio, sample_rate=speech.sample_rate)
            while cue is not None and cue[0] < (index + 1) * CHUNK:
                for item in cue[1]:
                    yield due, item
                cue = next(cues, None)
            if index == 0 and self._generation > 0:
                yield due, message("bot-tts-stopped")
                if self._generation == 1 and after_model:
                    yield due, message("bot-llm-stopped")
        while cue is not None:
            for item in cue[1]:
                yield begin + _due(_chunks(speech)), item
            cue = next(cues, None)
        yield begin + self.duration(speech), message("bot-stopped-speaking")

    def duration(self, speech: ReplyAudio) -> float:
        """Return the seconds from the start of a speech to the report of its end."""
        return _due(_chunks(speech)) + (_OLD_STOP_DELAY if self._generation == 0 else 0.0)

    def _segments(self, text: str) -> list[Segment]:
        return [Segment(id=next(self._ids), text=part) for part in sentences_of(text)]

    def _cues(self, segments: list[Segment], speech: ReplyAudio) -> Iterator[Cue]:
        if self._generation == 0:
            return _cued_sentences(segments, speech)
        return _cued_words(segments, speech) if self._generation == 1 else _cued_progress(segments, speech)


def _chunk_bytes(speech: ReplyAudio) -> int:
    return 2 * max(1, round(speech.sample_rate * CHUNK))


def _chunks(speech: ReplyAudio) -> int:
    return -(-len(speech.pcm) // _chunk_bytes(speech))


def _due(chunk: int) -> float:
    """Return when a chunk is due: in real time, with the head start of a real bot's first frames."""
    return max(0, chunk - _HEAD_START_CHUNKS) * CHUNK


def _cued_sentences(segments: list[Segment], speech: ReplyAudio) -> Iterator[Cue]:
    """Yield the cues of bots of 0.3, which report a sentence after it was spoken."""
    ends = [*speech.word_starts, math.inf]
    yield 0.0, [message("bot-started-speaking")]
    words = 0
    for segment in segments:
        words += len(words_of(segment.text))
        yield ends[words], [message("bot-tts-text", {"text": segment.text})]


def _cued_words(segments: list[Segment], speech: ReplyAudio) -> Iterator[Cue]:
    """Yield the cues for clients of 1.x: all sentences once they are written, and each word at its start."""
    words = [(segment, word) for segment in segments for word in words_of(segment.text)]
    announced = [segment.announced(will_be_spoken=True) for segment in segments]
    for number, (start, (segment, word)) in enumerate(zip(speech.word_starts, words, strict=True)):
        said = [segment.word(word), message("bot-tts-text", {"text": word})]
        yield start, said if number else [message("bot-started-speaking"), announced[0], *said, *announced[1:]]


def _cued_progress(segments: list[Segment], speech: ReplyAudio) -> Iterator[Cue]:
    """Yield the cues for clients of 2.x: each word at its start, and each sentence after the one before it."""
    starts = iter(speech.word_starts)
    for number, segment in enumerate(segments):
        for match in re.finditer(r"\S+", segment.text):
            word = message("bot-tts-text", {"text": match.group()})
            said = [word, segment.progress(segment.text[: match.end()])]
            if number == 0 and match.start() == 0:
                # A real bot reports the first progress of a turn before the start of the speech, because its clock is
                # faster.
                said = [said[1], message("bot-started-speaking"), segment.announced(will_be_spoken=True), word]
            if match.end() == len(segment.text):
                said += [later.announced(will_be_spoken=True) for later in segments[number + 1 : number + 2]]
            yield next(starts), said


# -- replies ----------------------------------------------------------------------------------------------------------

_ERROR: Final = "The model failed"


@attrs.frozen
class AwaitResult:
    """A step that lasts until a client's function returns. Times of later steps count from this moment."""

    call_id: str


Item: TypeAlias = Message | AudioRawFrame | AwaitResult
# Results of the client's functions so far, by call id.
Results: TypeAlias = Mapping[str, Any] | None
# Seconds since the start of the reply, and the item due then. The generator receives the results.
Script: TypeAlias = Generator[tuple[float, Item], Results, None]
Voice: TypeAlias = Callable[[str], ReplyAudio]


@attrs.frozen(kw_only=True)
class ReplyScript:
    """One reply in a session.

    Attributes:
        reply: The reply.
        bot_version: Version of the bot.
        speech: Source of the speech messages.
        voice: Source of the audio.
        echo: Source of the answer's audio, if it is another one.
        spoken: False if the user asked for a text answer.
        mute: True if the session has no speech at all.
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
            spoken = True  # after a function, real bots speak even if the user asked for text
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
        """Yield the reply of a model that fails."""
        error = message("error", {"error": _ERROR, "fatal": False})
        if self.bot_version.generation == 0:
            yield self.reply.after, error
        yield 0.0, message("bot-llm-started")
        yield from self._run(self.reply.after, ())
        if self.bot_version.generation > 0:
            yield self.reply.after, error

    def _run(self, now: float, texts: Iterable[Message]) -> Iterator[tuple[float, Message]]:
        """Yield the end of a model run. Bots of 0.3 report it twice if nothing was written."""
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
        """Yield a function call and the filler speech; return the time of the model's next run."""
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
    """The remaining reports of an interrupted reply.

    Attributes:
        calls: End of a running function.
        words: Next word of the speech.
        sentences: Next sentence; bots of 2.x announce it with their next speech.
    """

    calls: list[Message] = attrs.field(factory=list)
    words: list[Message] = attrs.field(factory=list)
    sentences: list[Message] = attrs.field(factory=list)


def cut_reply(item: Item, script: Script, *, speaking: bool) -> CutReply:
    """Return the remaining reports of a reply that was cut before this item of the script."""
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
