"""Services that tell themselves when the user speaks, for Pipecat 1.14.0, 1.5.0 and 0.0.108."""

from __future__ import annotations

import asyncio
import itertools

import numpy as np
from acting import Acting
from pipecat.frames import frames
from pipecat.frames.frames import (
    Frame,
    InputAudioRawFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.utils.time import time_now_iso8601
from script import Script, tokens
from sounds import SPEECH_RMS, tone
from standins import RepeatingLLM

# In Pipecat 1.14 services propose these events; before, services reported them.
STARTED = getattr(frames, "ProposedUserStartedSpeakingFrame", frames.UserStartedSpeakingFrame)
STOPPED = getattr(frames, "ProposedUserStoppedSpeakingFrame", frames.UserStoppedSpeakingFrame)
INTERRUPTS = STARTED is frames.UserStartedSpeakingFrame
_SILENCE = 0.3
_RATE_HZ = 24_000


class _Ear:
    """Reports when the user starts and stops to speak."""

    def __init__(self) -> None:
        self._silent = _SILENCE

    def listen(self, frame: InputAudioRawFrame) -> type[Frame] | None:
        samples = np.frombuffer(frame.audio, dtype="<i2").astype(np.float64)
        was_silent, seconds = self._silent >= _SILENCE, len(samples) / frame.sample_rate
        is_loud = np.sqrt(np.mean(samples**2)) > SPEECH_RMS
        self._silent = 0.0 if is_loud else min(_SILENCE, self._silent + seconds)
        is_silent = self._silent >= _SILENCE - 1e-6
        return None if is_silent == was_silent else STOPPED if is_silent else STARTED


class HearingSTT(FrameProcessor):
    """Transcribes, and then tells that the user has stopped, as Deepgram's Flux does."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self._ear = _Ear()
        self._transcripts = itertools.cycle(script.hears)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, InputAudioRawFrame) and (change := self._ear.listen(frame)) is not None:
            if change is STOPPED:
                await self.push_frame(TranscriptionFrame(next(self._transcripts), "", time_now_iso8601()))
            await self.broadcast_frame(change)
            if change is STARTED and INTERRUPTS:
                await self.broadcast_interruption()
        await self.push_frame(frame, direction)


class HearingLLM(Acting, RepeatingLLM):
    """A speech-to-speech model, as OpenAI's. It reports the user's words after its answer starts."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self._ear = _Ear()
        self._transcripts = itertools.cycle(script.hears)
        self._heard: str | None = None
        self._speech: asyncio.Task[None] | None = None

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        if isinstance(frame, frames.LLMContextFrame):
            asked = [message["content"] for message in frame.context.get_messages() if message["role"] == "user"]
            if asked[-1:] == [self._heard]:
                return  # the speech that it answers already
        if isinstance(frame, frames.InterruptionFrame) and self._speech is not None:
            await self.cancel_task(self._speech)
            self._speech = None
        if isinstance(frame, InputAudioRawFrame) and (change := self._ear.listen(frame)) is not None:
            await self.broadcast_frame(change)
            if change is STARTED and INTERRUPTS:
                await self.broadcast_interruption()
            if change is STOPPED:
                self._speech = self.create_task(self._answer_speech(next(self._transcripts)))
        await super().process_frame(frame, direction)

    async def _answer_speech(self, heard: str) -> None:
        self._heard = heard
        [(_, text)] = self.script.reply(LLMContext([{"role": "user", "content": heard}]).get_messages())
        await self.push_frame(LLMFullResponseStartFrame())
        await self.push_frame(TTSStartedFrame())
        for n, token in enumerate(tokens(text)):
            await asyncio.sleep(0.05)
            written, spoken = LLMTextFrame(token), TTSTextFrame(token, "sentence")
            written.append_to_context, spoken.includes_inter_frame_spaces = False, True
            await self.push_frame(written)
            await self.push_frame(spoken)
            await self.push_frame(TTSAudioRawFrame(tone(n, _RATE_HZ), _RATE_HZ, 1))
            if n == 1:
                transcript = TranscriptionFrame(heard, "", time_now_iso8601())
                await self.push_frame(transcript, FrameDirection.UPSTREAM)
        await self.push_frame(TTSStoppedFrame())
        await self.push_frame(LLMFullResponseEndFrame())
