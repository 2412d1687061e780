"""A bot's turn as a timed script: which messages and audio are sent, in which order and when. Pure."""

from __future__ import annotations

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
        id: `segment_id`, the same in all reports of the sentence.
        text: the sentence.
    """

    id: int
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
        data = {"text": text, "output_type": kind, "text_type": kind, "aggregated_by": kind, "segment_id": self.id}
        return message("bot-output", data | {name: value for name, value in more.items() if value is not None})


def llm_run(reply: str) -> Iterator[Message]:
    """Yield the messages that the language model sends while it writes a reply."""
    yield message("bot-llm-started")
    for number, sentence in enumerate(sentences_of(reply)):
        for token in re.findall(r"\s*\S+", sentence if number == 0 else f" {sentence}"):
            yield message("bot-llm-text", {"text": token})
        yield message("bot-transcription", {"text": sentence})
    yield message("bot-llm-stopped")


def bot_turn(reply: str, speech: ReplyAudio | None, *, first_segment_id: int, generation: int) -> Iterator[Step]:
    """Yield a reply in the order and at the pace of a real bot.

    Args:
        reply: the text.
        speech: its audio, with one start per word; None if it is not spoken.
        first_segment_id: `segment_id` of the first sentence; those of the others follow.
        generation: of the protocol that the client speaks: 0, 1 or 2.
    """
    for item in llm_run(reply):
        yield 0.0, item
    yield from bot_speech(reply, speech, first_segment_id=first_segment_id, generation=generation)


def bot_speech(text: str, speech: ReplyAudio | None, *, first_segment_id: int, generation: int) -> Iterator[Step]:
    """Yield the part of a turn that follows the language model. Arguments as for `bot_turn`."""
    segments = [Segment(id=first_segment_id + number, text=part) for number, part in enumerate(sentences_of(text))]
    if not segments or speech is None or not speech.pcm:
        for segment in segments:
            yield 0.0, segment.announced(will_be_spoken=False)
        return
    yield from _spoken(segments, speech, generation)


def _spoken(segments: list[Segment], speech: ReplyAudio, generation: int) -> Iterator[Step]:
    """Yield audio in complete chunks in real time, and between them each word when it is spoken."""
    chunk_bytes = 2 * max(1, round(speech.sample_rate * CHUNK))
    chunks = -(-len(speech.pcm) // chunk_bytes)
    cues = _cued_sentences(segments, speech) if generation == 0 else _cued_words(segments, speech, generation)
    cue = next(cues, None)
    yield 0.0, message("bot-tts-started")
    for index in range(chunks):
        due = _due(index)
        while cue is not None and cue[0] < (index + 1) * CHUNK:
            for item in cue[1]:
                yield due, item
            cue = next(cues, None)
        audio = speech.pcm[index * chunk_bytes : (index + 1) * chunk_bytes].ljust(chunk_bytes, b"\0")
        yield due, AudioRawFrame(audio=audio, sample_rate=speech.sample_rate)
        if index == 0:
            yield due, message("bot-tts-stopped")
    while cue is not None:
        for item in cue[1]:
            yield _due(chunks), item
        cue = next(cues, None)
    yield _due(chunks) + (_OLD_STOP_DELAY if generation == 0 else 0.0), message("bot-stopped-speaking")


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


def _cued_words(segments: list[Segment], speech: ReplyAudio, generation: int) -> Iterator[Cue]:
    """Yield the cues of later bots, which report each word when it begins; clients of 1.x get words, not progress."""
    starts = iter(speech.word_starts)
    for segment in segments:
        position = 0
        for match in re.finditer(r"\S+", segment.text):
            word, first_of_turn = match.group(), segment is segments[0] and position == 0
            announced = [segment.announced(will_be_spoken=True)] if position == 0 else []
            progress = [segment.progress(segment.text[: match.end()])] if generation > 1 else []
            # A real bot's clock reports the first progress of a turn before its audio path reports the start of speech.
            opening = [*progress, message("bot-started-speaking"), *announced]
            said = [] if generation > 1 else [segment.word(word)]
            said.append(message("bot-tts-text", {"text": word}))
            yield next(starts), [*(opening if first_of_turn else announced + progress), *said]
            position = match.end()
