"""Services that need no model and no key. They subclass Pipecat's own, so their messages on the wire are Pipecat's.

They are for Pipecat 1.14.0 and for 0.0.108; those for 0.0.73 are in standins_0_3.py.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from typing import Any

from pipecat.frames.frames import (
    Frame,
    FunctionCallFromLLM,
    InterimTranscriptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
)
from pipecat.metrics.metrics import LLMTokenUsage
from pipecat.processors.frame_processor import FrameDirection
from pipecat.services.llm_service import LLMService
from pipecat.services.settings import LLMSettings, STTSettings, TTSSettings
from pipecat.services.stt_service import SegmentedSTTService
from pipecat.services.tts_service import TTSService
from pipecat.utils.time import time_now_iso8601
from sounds import WORD_SECONDS, tone
from wits import Call, answer_to

TOKEN_SECONDS = 0.01
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
    """Answers as `wits.answer_to` says, token by token, or calls a function."""

    def __init__(self) -> None:
        super().__init__(settings=LLMSettings(model="repeating-llm", **dict.fromkeys(_UNUSED_LLM_SETTINGS)))
        self._calls = itertools.count(1)

    def can_generate_metrics(self) -> bool:
        return True

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMContextFrame):
            await self.push_frame(LLMFullResponseStartFrame())
            try:
                await self.answer(frame.context)
            finally:
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
            await self._say(answer)

    async def _say(self, tokens: list[str]) -> None:
        await self.start_processing_metrics()
        await self.start_ttfb_metrics()
        for token in tokens:
            await asyncio.sleep(TOKEN_SECONDS)
            await self.stop_ttfb_metrics()
            await self._push_llm_text(token)
        # "You said:" are the model's own words.
        prompt, completion = max(0, len(tokens) - 2), len(tokens)
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
            pcm = tone(self._spoken_words, self.sample_rate)
            yield TTSAudioRawFrame(pcm, self.sample_rate, 1, context_id=context_id)
            self._spoken_words += 1
