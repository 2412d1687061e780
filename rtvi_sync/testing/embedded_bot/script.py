"""A bot's speech as a timed script: which messages and audio are sent, in which order and when. Pure."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import attrs

from rtvi_sync.protocol.frames import AudioRawFrame
from rtvi_sync.testing.embedded_bot.tones import ReplyAudio

CHUNK: Final = 0.04
_HEAD_START_CHUNKS: Final = 1
# Seconds after the last audio until bots of RTVI 0.3 report the end of their speech.
_OLD_STOP_DELAY: Final = 0.35

Message: TypeAlias = dict[str, Any]
# Seconds after the beginning of the turn, and the message or audio that is due then.
Step: TypeAlias = tuple[float, Message | AudioRawFrame]
# Seconds after the beginning of the speech, and the messages that are due then.
Cue: TypeAlias = tuple[float, list[Message]]


def message(type: str, data: Any = None, id: str | None = None) -> Message:
    """Build an RTVI message; fields that are None are left out."""
    fields = {"label": "rtvi-ai", "type": type, "id": id, "data": data}
    return {name: value for name, value in fields.items() if value is not None}


def words_of(reply: str) -> list[str]:
    """Return the words of `reply` as they are spoken, without spaces."""
    return reply.split()


def sentences_of(reply: str) -> list[str]:
    """Return the sentences of `reply`; together they hold all of its words."""
    return [sentence.strip() for sentence in re.split(r"(?<=[.!?])\s+", reply) if sentence.strip()]


@attrs.frozen(kw_only=True)
class Segment:
    """One sentence of a reply, as `bot-output` reports it.

    Attributes:
        id: `segment_id`, the same in all reports of the sentence; None: the bot is of RTVI 1.x, where they have none.
        text: the sentence.
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
        """Build the report of the current word, for clients that know no progress."""
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
    """Which messages and audio the bot's speech is in one session.

    Args:
        bot_generation: of the bot: 0, 1 or 2.
        generation: of the protocol that the client speaks: 0, 1 or 2.
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
        """Yield speech: audio in complete chunks in real time, and between them each word when it is spoken.

        Args:
            text: the words; there is at least one.
            speech: their audio.
            begin: seconds after the beginning of the turn.
            after_model: False: no run of the language model precedes the speech.
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
            # A real bot's first audio precedes all that is told of the speech.
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
        """Return the seconds from the beginning of a speech to the report of its end."""
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
    """Return when a chunk is due: in real time, with the head start that a real bot's first frames have."""
    return max(0, chunk - _HEAD_START_CHUNKS) * CHUNK


def _cued_sentences(segments: list[Segment], speech: ReplyAudio) -> Iterator[Cue]:
    """Yield the cues of bots of 0.3, which report a sentence when it has been spoken."""
    ends = [*speech.word_starts, math.inf]
    yield 0.0, [message("bot-started-speaking")]
    words = 0
    for segment in segments:
        words += len(words_of(segment.text))
        yield ends[words], [message("bot-tts-text", {"text": segment.text})]


def _cued_words(segments: list[Segment], speech: ReplyAudio) -> Iterator[Cue]:
    """Yield the cues for clients of 1.x: all sentences as soon as they are written, and each word when it begins."""
    words = [(segment, word) for segment in segments for word in words_of(segment.text)]
    announced = [segment.announced(will_be_spoken=True) for segment in segments]
    for number, (start, (segment, word)) in enumerate(zip(speech.word_starts, words, strict=True)):
        said = [segment.word(word), message("bot-tts-text", {"text": word})]
        yield start, said if number else [message("bot-started-speaking"), announced[0], *said, *announced[1:]]


def _cued_progress(segments: list[Segment], speech: ReplyAudio) -> Iterator[Cue]:
    """Yield the cues for clients of 2.x: each word when it begins, and a sentence when the one before is over."""
    starts = iter(speech.word_starts)
    for number, segment in enumerate(segments):
        for match in re.finditer(r"\S+", segment.text):
            word = message("bot-tts-text", {"text": match.group()})
            said = [word, segment.progress(segment.text[: match.end()])]
            if number == 0 and match.start() == 0:
                # A real bot's clock reports the first progress of a turn before its audio path the start of speech.
                said = [said[1], message("bot-started-speaking"), segment.announced(will_be_spoken=True), word]
            if match.end() == len(segment.text):
                said += [later.announced(will_be_spoken=True) for later in segments[number + 1 : number + 2]]
            yield next(starts), said
