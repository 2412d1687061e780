"""Services that need no model and no key, for Pipecat 0.0.73; see standins.py."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator
from typing import Any

from pipecat.frames.frames import (
    Frame,
    FunctionCallFromLLM,
    InterimTranscriptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
)
from pipecat.processors.aggregators.openai_llm_context import OpenAILLMContextFrame
from pipecat.processors.frame_processor import FrameDirection
from pipecat.services.llm_service import LLMService
from pipecat.services.stt_service import SegmentedSTTService
from pipecat.services.tts_service import TTSService
from pipecat.utils.time import time_now_iso8601
from sounds import tone
from wits import Call, answer_to


class ScriptedSTT(SegmentedSTTService):
    """Hears "hello bot" in every utterance, and first only its first word."""

    async def run_stt(self, audio: bytes) -> AsyncGenerator[Frame | None, None]:
        yield InterimTranscriptionFrame("hello", "", time_now_iso8601())
        yield TranscriptionFrame("hello bot", "", time_now_iso8601())


class RepeatingLLM(LLMService):
    """Answers as `wits.answer_to` says, token by token, or calls a function."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = itertools.count(1)

    def can_generate_metrics(self) -> bool:
        return True

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, OpenAILLMContextFrame):
            await self.push_frame(LLMFullResponseStartFrame())
            await self.start_processing_metrics()
            await self.answer(frame.context)
            await self.stop_processing_metrics()
            await self.push_frame(LLMFullResponseEndFrame())
        else:
            await self.push_frame(frame, direction)

    async def answer(self, context: Any) -> None:
        """Write the answer to a context, or call a function."""
        answer = answer_to(context.get_messages())
        if isinstance(answer, Call):
            call_id = f"call_{next(self._calls)}"
            await self.run_function_calls([FunctionCallFromLLM(answer.function, call_id, answer.arguments, context)])
        else:
            for token in answer:
                await self.push_frame(LLMTextFrame(token))


class ToneTTS(TTSService):
    """Speaks a word as a tone."""

    async def run_tts(self, text: str) -> AsyncGenerator[Frame, None]:
        yield TTSStartedFrame()
        for n, _ in enumerate(text.split()):
            yield TTSAudioRawFrame(tone(n, self.sample_rate), self.sample_rate, 1)
        yield TTSStoppedFrame()
