"""Sound without words: the bots' speech, the speech that they hear, and the echo. For every version of Pipecat."""

from __future__ import annotations

import numpy as np
from pipecat.audio.vad.vad_analyzer import VADAnalyzer, VADParams
from pipecat.frames.frames import (
    Frame,
    InputAudioRawFrame,
    InputImageRawFrame,
    OutputAudioRawFrame,
    OutputImageRawFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

WORD_SECONDS = 0.2
SPEECH_RMS = 500.0


class LevelVAD(VADAnalyzer):
    """Takes loud audio for speech: 16-bit samples with a root mean square above `SPEECH_RMS`."""

    def __init__(self) -> None:
        super().__init__(params=VADParams(start_secs=0.1, stop_secs=0.2, min_volume=0.0))

    def num_frames_required(self) -> int:
        return self.sample_rate // 50

    def voice_confidence(self, buffer: bytes) -> float:
        samples = np.frombuffer(buffer, dtype="<i2").astype(np.float64)
        return 1.0 if np.sqrt(np.mean(samples**2)) > SPEECH_RMS else 0.0


class Echo(FrameProcessor):
    """Sends the user's audio and pictures back.

    Attributes:
        pictures: how many have arrived.
    """

    pictures = 0

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, InputAudioRawFrame):
            frame = OutputAudioRawFrame(frame.audio, frame.sample_rate, frame.num_channels)
        elif isinstance(frame, InputImageRawFrame):
            self.pictures += 1
            frame = OutputImageRawFrame(frame.image, frame.size, frame.format)
        await self.push_frame(frame, direction)


def tone(n: int, sample_rate: int) -> bytes:
    """Return a word: a tone whose pitch differs from its neighbours' pitch."""
    seconds = np.arange(int(sample_rate * WORD_SECONDS)) / sample_rate
    return (8000 * np.sin(2 * np.pi * (300 + 50 * (n % 8)) * seconds)).astype("<i2").tobytes()
