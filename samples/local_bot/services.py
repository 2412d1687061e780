"""Pipecat services for speech recognition, answers and a voice. They need no key and no cloud."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator

from pipecat.frames.frames import (
    Frame,
    FunctionCallFromLLM,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
)
from pipecat.processors.frame_processor import FrameDirection
from pipecat.services.llm_service import FunctionCallParams, LLMService
from pipecat.services.settings import LLMSettings, STTSettings, TTSSettings
from pipecat.services.stt_service import SegmentedSTTService
from pipecat.services.tts_service import TTSService
from pipecat.utils.time import time_now_iso8601

from . import answers
from .speech import RECOGNIZER_RATE_HZ, Recognizer, Voice

# Pipecat requires every setting of a service, also those that it does not have.
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


class PocketSphinxSTTService(SegmentedSTTService):
    """Speech recognition by PocketSphinx, one utterance after the other.

    Args:
        recognizer: may be shared by sessions.
    """

    def __init__(self, recognizer: Recognizer) -> None:
        settings = STTSettings(model="pocketsphinx", language=None)
        super().__init__(sample_rate=RECOGNIZER_RATE_HZ, ttfs_p99_latency=0.5, settings=settings)
        self._recognizer = recognizer

    @property
    def wants_wav_segments(self) -> bool:
        """Return False: PocketSphinx takes PCM."""
        return False

    def can_generate_metrics(self) -> bool:
        """Return True: the duration of the recognition is reported."""
        return True

    async def run_stt(self, audio: bytes) -> AsyncGenerator[Frame | None, None]:
        """Yield the words of an utterance."""
        await self.start_processing_metrics()
        text = await asyncio.to_thread(self._recognizer.recognize, audio)
        await self.stop_processing_metrics()
        if text:
            yield TranscriptionFrame(text, self._user_id, time_now_iso8601())


class RulesLLMService(LLMService):
    """Answers by the rules of `answers`, in place of a language model."""

    def __init__(self) -> None:
        super().__init__(settings=LLMSettings(model="rules", **dict.fromkeys(_UNUSED_LLM_SETTINGS)))
        self._call_numbers = itertools.count(1)
        self.register_function("get_time", _get_time)
        self.register_function("get_weather", _get_weather)

    def can_generate_metrics(self) -> bool:
        """Return True: the time to the first word is reported."""
        return True

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Answer a context; pass on every other frame."""
        await super().process_frame(frame, direction)
        if not isinstance(frame, LLMContextFrame):
            await self.push_frame(frame, direction)
            return
        await self.push_frame(LLMFullResponseStartFrame())
        await self.start_ttfb_metrics()
        answer = answers.answer_to(frame.context.get_messages())
        await self.stop_ttfb_metrics()
        if isinstance(answer, answers.Call):
            call_id = f"call_{next(self._call_numbers)}"
            call = FunctionCallFromLLM(answer.function, call_id, answer.arguments, frame.context)
            await self.run_function_calls([call])
        else:
            await self.push_frame(LLMTextFrame(answer))
        await self.push_frame(LLMFullResponseEndFrame())


async def _get_time(params: FunctionCallParams) -> None:
    await params.result_callback(answers.get_time())


async def _get_weather(params: FunctionCallParams) -> None:
    await params.result_callback(answers.get_weather(**params.arguments))


class EspeakTTSService(TTSService):
    """A voice by espeak-ng.

    Args:
        voice: may be shared by sessions.
    """

    def __init__(self, voice: Voice) -> None:
        super().__init__(
            sample_rate=voice.sample_rate_hz,
            push_start_frame=True,
            push_stop_frames=True,
            settings=TTSSettings(model="espeak-ng", voice=None, language=None),
        )
        self._voice = voice

    def can_generate_metrics(self) -> bool:
        """Return True: the time to the first audio is reported."""
        return True

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """Yield a text as speech."""
        await self.start_tts_usage_metrics(text)
        pcm = await asyncio.to_thread(self._voice.speak, text)
        await self.stop_ttfb_metrics()
        yield TTSAudioRawFrame(pcm, self.sample_rate, 1, context_id=context_id)
