"""Pipecat 1.14.0 behind FastAPI: a bot that shows every message of its protocol, RTVI 2.2.

Client messages have it do so: see `ShowAndTell`. A typed text may have the language model call a function: see wits.py
and functions.py.
"""

from __future__ import annotations

from typing import Any

import pipecat.processors.frameworks.rtvi.models as rtvi_models
import scenes
from answers import ShowAndTell
from fastapi import WebSocket
from functions import REPORTED, register_functions
from pipecat.frames.frames import (
    Frame,
    InputDTMFFrame,
    LLMMarkerResponseFrame,
    MetricsFrame,
    OutputTransportMessageUrgentFrame,
    UserBackchannelFrame,
    UserMuteStartedFrame,
    UserMuteStoppedFrame,
)
from pipecat.metrics.metrics import STTUsage, STTUsageMetricsData, TTFAMetricsData, TTFATMetricsData
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frameworks.rtvi import (
    RTVIFunctionCallReportLevel,
    RTVIObserver,
    RTVIObserverParams,
    RTVIProcessor,
)
from pipecat.processors.frameworks.rtvi.frames import RTVIUICommandFrame, RTVIUIJobGroupFrame
from pipecat.services.google.frames import LLMSearchOrigin, LLMSearchResponseFrame, LLMSearchResult
from pipecat.services.google.rtvi import GoogleRTVIObserver
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport
from pipecat.utils.time import time_now_iso8601
from pipelines import run, speaking_worker, transport_options
from scenes import Scenes
from serving import Host
from session import PipelineSession
from standins import RepeatingLLM

host = Host()
# The functions are called like the levels of their reports.
LEVELS = {
    **{name: RTVIFunctionCallReportLevel(name) for name in REPORTED},
    "*": RTVIFunctionCallReportLevel.FULL,
    "old_client_tool": RTVIFunctionCallReportLevel.DISABLED,
}


def observing() -> RTVIObserverParams:
    """Report everything, including the reports that are off by default."""
    return RTVIObserverParams(
        bot_llm_marker_enabled=True,
        bot_audio_level_enabled=True,
        user_audio_level_enabled=True,
        vad_user_speaking_enabled=True,
        system_logs_enabled=True,
        stt_raw_text_enabled=True,
        llm_raw_text_enabled=True,
        tts_raw_text_enabled=True,
        function_call_report_level=LEVELS,
    )


class ShowingRTVI(RTVIProcessor):
    """Has Google's observer, which reports searches too. Pipecat's own processor for it ignores the parameters."""

    def create_rtvi_observer(self, *, params: RTVIObserverParams | None = None, **_: Any) -> RTVIObserver:
        observer = GoogleRTVIObserver(self)
        RTVIObserver.__init__(observer, self, params=params)
        return observer


class Journal(BaseObserver):
    """Pipecat's record of the client's messages."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Any] = []

    async def on_push_frame(self, data: FramePushed) -> None:
        if isinstance(data.frame, InputDTMFFrame) and data.first_push:
            self.entries.append({"dtmf": data.frame.button.value})

    async def on_ui_message(self, rtvi: RTVIProcessor, message: Any) -> None:
        self.entries.append({message.type: message.data.model_dump(exclude_none=True)})


def more_metrics() -> list[Frame]:
    return [
        MetricsFrame(
            data=[
                TTFAMetricsData(processor="TTS#0", ttfa=0.75, ttfb=0.5, leading_silence=0.25),
                TTFATMetricsData(processor="LLM#0", ttfat=1.5, ttfb=0.5, thinking_time=1.0),
                STTUsageMetricsData(processor="STT#0", value=STTUsage(audio_seconds=2.5)),
            ]
        )
    ]


def jobs() -> list[Frame]:
    steps = [
        rtvi_models.UIJobGroupStartedData(job_id="job-1", workers=["a", "b"], label="research", at=1),
        rtvi_models.UIJobUpdateData(job_id="job-1", worker_name="a", data={"progress": 0.5}, at=2),
        rtvi_models.UIJobCompletedData(job_id="job-1", worker_name="a", status="completed", response=[1], at=3),
        rtvi_models.UIJobGroupCompletedData(job_id="job-1", at=4),
    ]
    return [RTVIUIJobGroupFrame(data=step) for step in steps]


def search() -> list[Frame]:
    found = LLMSearchResult(text="a passage", confidence=[0.5, 0.75])
    origin = LLMSearchOrigin(site_uri="https://example.org", site_title="Example", results=[found])
    return [LLMSearchResponseFrame(search_result="an answer", rendered_content="<p>", origins=[origin])]


def speech() -> list[Frame]:
    data = rtvi_models.AudioMessageData(audio="AAAA", sample_rate=16000, num_channels=1)
    return [OutputTransportMessageUrgentFrame(message=rtvi_models.BotTTSAudioMessage(data=data).model_dump())]


MARKERS = ["●", "◐", "○"]
SCENES: Scenes = {
    **scenes.SCENES,
    "more-metrics": more_metrics,
    "jobs": jobs,
    "search": search,
    "speech": speech,
    "commands": lambda: [
        RTVIUICommandFrame("toast", rtvi_models.Toast(title="Saved", duration_ms=1500).model_dump(exclude_none=True)),
        RTVIUICommandFrame("refresh"),
    ],
    "marker": lambda: [LLMMarkerResponseFrame(raw="● Hi.", marker="●", kind="complete", markers=MARKERS)],
    "mute": lambda: [UserMuteStartedFrame(), UserMuteStoppedFrame()],
    "backchannel": lambda: [UserBackchannelFrame("mhm", "user-1", time_now_iso8601())],
}


async def bot(websocket: WebSocket) -> None:
    transport = FastAPIWebsocketTransport(websocket, FastAPIWebsocketParams(**transport_options()))
    context, llm, journal = LLMContext(), RepeatingLLM(), Journal()
    worker = speaking_worker(
        transport,
        ["hello bot"],
        context,
        llm,
        observers=[journal],
        rtvi_processor=ShowingRTVI(),
        rtvi_observer_params=observing(),
    )

    async def show(scene: str) -> None:
        await worker.queue_frames(SCENES[scene]())

    register_functions(llm, worker.rtvi)
    worker.rtvi.add_event_handler("on_client_message", ShowAndTell(show, context, journal.entries).answer)
    worker.rtvi.add_event_handler("on_ui_message", journal.on_ui_message)
    with host.sessions.live(PipelineSession(worker, transport)):
        await run(worker, transport)


if __name__ == "__main__":
    host.add_bot(bot)
    host.run()
