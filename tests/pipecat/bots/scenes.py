"""Messages that bots show on demand, by name: no conversation with our stand-ins causes them.

A scene is a list of Pipecat's own frames, which its observer reports. Those here are for every version of Pipecat.
"""

from __future__ import annotations

from collections.abc import Callable

from loguru import logger
from pipecat.frames.frames import ErrorFrame, Frame, MetricsFrame
from pipecat.metrics.metrics import (
    LLMTokenUsage,
    LLMUsageMetricsData,
    ProcessingMetricsData,
    TTFBMetricsData,
    TTSUsageMetricsData,
)
from pipecat.processors.frameworks.rtvi import RTVIServerMessageFrame

Scenes = dict[str, Callable[[], list[Frame]]]

# A message may be any JSON.
MESSAGES = ["a string", 0, False, None, [1, None], {"nested": {"key": "ä"}}]


def metrics() -> list[Frame]:
    """Return measurements of every kind that Pipecat always had, and none."""
    usage = LLMTokenUsage(prompt_tokens=10, completion_tokens=5, total_tokens=15, cache_read_input_tokens=2)
    data = [
        TTFBMetricsData(processor="LLM#0", model="a model", value=0.25),
        ProcessingMetricsData(processor="LLM#0", model="a model", value=0.5),
        LLMUsageMetricsData(processor="LLM#0", model="a model", value=usage),
        TTSUsageMetricsData(processor="TTS#0", model="a voice", value=42),
    ]
    return [MetricsFrame(data=data), MetricsFrame(data=[])]


def log() -> list[Frame]:
    """Return a line of the log, for which there is no frame."""
    logger.info("a line of the log")
    return []


SCENES: Scenes = {
    "metrics": metrics,
    "error": lambda: [ErrorFrame("a scripted error")],
    "log": log,
    "server-messages": lambda: [RTVIServerMessageFrame(data=message) for message in MESSAGES],
}
