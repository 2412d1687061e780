"""Services that need no model and no key. They subclass Pipecat's own (1.14.0): what reaches the wire is Pipecat's."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncGenerator

import numpy as np
from pipecat.audio.vad.vad_analyzer import VADAnalyzer, VADParams
from pipecat.frames.frames import (
    Frame,
    InterimTranscriptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
)
from pipecat.metrics.metrics import LLMTokenUsage
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameDirection
from pipecat.services.llm_service import LLMService
from pipecat.services.settings import LLMSettings, STTSettings, TTSSettings
from pipecat.services.stt_service import SegmentedSTTService
from pipecat.services.tts_service import TTSService
from pipecat.utils.time import time_now_iso8601

WORD_SECONDS = 0.2
TOKEN_SECONDS = 0.01
SPEECH_RMS = 500.0
# Pipecat wants every setting of a service given, if only as None.
_UNUSED_LLM_SETTINGS = (
    "system_instruction",
    "temperature",
    "max_tokens",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "filter_incomplete_user_turns",
    "user_turn_completion_config",
)


class LevelVAD(VADAnalyzer):
    """Speech is what is loud: 16-bit samples with a root mean square above `SPEECH_RMS`."""

    def __init__(self) -> None:
        super().__init__(params=VADParams(start_secs=0.1, stop_secs=0.2, min_volume=0.0))

    def num_frames_required(self) -> int:
        return self.sample_rate // 50

    def voice_confidence(self, buffer: bytes) -> float:
        samples = np.frombuffer(buffer, dtype="<i2").astype(np.float64)
        return 1.0 if np.sqrt(np.mean(samples**2)) > SPEECH_RMS else 0.0


class ScriptedSTT(SegmentedSTTService):
    """Hears the given transcripts, one for each utterance, round and round, and first only its first word."""

    def __init__(self, transcripts: list[str]) -> None:
        super().__init__(ttfs_p99_latency=0.3, settings=STTSettings(model="scripted-stt", language=None))
        self._transcripts = itertools.cycle(transcripts)

    def can_generate_metrics(self) -> bool:
        return True

    async def run_stt(self, audio: bytes) -> AsyncGenerator[Frame | None, None]:
        text = next(self._transcripts)
        yield InterimTranscriptionFrame(text.split()[0], self._user_id, time_now_iso8601())
        yield TranscriptionFrame(text, self._user_id, time_now_iso8601())


class RepeatingLLM(LLMService):
    """Answers "You said: <what the user said>." token by token."""

    def __init__(self) -> None:
        super().__init__(settings=LLMSettings(model="repeating-llm", **dict.fromkeys(_UNUSED_LLM_SETTINGS)))

    def can_generate_metrics(self) -> bool:
        return True

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMContextFrame):
            await self.push_frame(LLMFullResponseStartFrame())
            try:
                await self._answer(_last_user_text(frame.context))
            finally:
                await self.push_frame(LLMFullResponseEndFrame())
        else:
            await self.push_frame(frame, direction)

    async def _answer(self, question: str) -> None:
        await self.start_processing_metrics()
        await self.start_ttfb_metrics()
        tokens = re.findall(r"\s*\S+", f"You said: {question.rstrip('.!? ')}.")
        for token in tokens:
            await asyncio.sleep(TOKEN_SECONDS)
            await self.stop_ttfb_metrics()
            await self._push_llm_text(token)
        prompt, completion = len(question.split()), len(tokens)
        usage = LLMTokenUsage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)
        await self.start_llm_usage_metrics(usage)
        await self.stop_processing_metrics()


class ToneTTS(TTSService):
    """Speaks a word as a tone of `WORD_SECONDS`, with the time of each word."""

    def __init__(self) -> None:
        super().__init__(
            push_text_frames=False,
            push_start_frame=True,
            push_stop_frames=True,
            settings=TTSSettings(model="tone-tts", voice="tone", language=None),
        )
        self._context_id = ""
        self._spoken_words = 0

    def can_generate_metrics(self) -> bool:
        return True

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        if context_id != self._context_id:
            self._context_id, self._spoken_words = context_id, 0
        await self.start_tts_usage_metrics(text)
        for word in text.split():
            await self.add_word_timestamps([(word, self._spoken_words * WORD_SECONDS)], context_id)
            yield TTSAudioRawFrame(
                _tone(self._spoken_words, self.sample_rate), self.sample_rate, 1, context_id=context_id
            )
            self._spoken_words += 1


def _tone(n: int, sample_rate: int) -> bytes:
    """A tone whose pitch differs from that of its neighbours."""
    seconds = np.arange(int(sample_rate * WORD_SECONDS)) / sample_rate
    return (8000 * np.sin(2 * np.pi * (300 + 50 * (n % 8)) * seconds)).astype("<i2").tobytes()


def _last_user_text(context: LLMContext) -> str:
    for message in reversed(context.get_messages()):
        if message["role"] == "user":
            return str(message["content"])
    return ""
