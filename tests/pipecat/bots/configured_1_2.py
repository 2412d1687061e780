"""Pipecat 0.0.108 (RTVI 1.2) behind FastAPI: a bot with client messages, a configuration and actions.

It answers client messages as the showcase does, and shows the parts that this version has.
"""

from __future__ import annotations

from typing import Any

import sentences  # noqa: F401

# isort: split
import scenes
from answers import ShowAndTell
from configuring import Configuration, add_configured_bot
from fastapi import WebSocket
from functions import REPORTED, register_functions
from pipecat.frames.frames import (
    Frame,
    LLMContextFrame,
    OutputTransportMessageUrgentFrame,
    UserMuteStartedFrame,
    UserMuteStoppedFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.processors.frameworks.rtvi import RTVIFunctionCallReportLevel, RTVIObserverParams
from pipecat.processors.frameworks.rtvi import models as rtvi_models
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport
from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from scenes import Scenes
from serving import Host
from session import PipelineSession
from sounds import LevelVAD
from standins import RepeatingLLM, ScriptedSTT, ToneTTS

host = Host()
# The functions are called like the levels of their reports; "arguments" is no level of this version.
LEVELS = {
    **{name: RTVIFunctionCallReportLevel(name) for name in REPORTED if name != "arguments"},
    "*": RTVIFunctionCallReportLevel.FULL,
    "old_client_tool": RTVIFunctionCallReportLevel.DISABLED,
}


def speech() -> list[Frame]:
    data = rtvi_models.AudioMessageData(audio="AAAA", sample_rate=16000, num_channels=1)
    return [OutputTransportMessageUrgentFrame(message=rtvi_models.BotTTSAudioMessage(data=data).model_dump())]


def appended() -> list[Frame]:
    """Return an application's answer to append-to-context: Pipecat itself gives none, and has no class for it."""
    message = {"label": "rtvi-ai", "type": "append-to-context-result", "data": {"result": True}}
    return [OutputTransportMessageUrgentFrame(message=message)]


SCENES: Scenes = {
    **scenes.SCENES,
    "appended": appended,
    "speech": speech,
    "mute": lambda: [UserMuteStartedFrame(), UserMuteStoppedFrame()],
}


async def bot(websocket: WebSocket, config: list[Any] | None) -> None:
    options = {"audio_in_enabled": True, "audio_out_enabled": True, "serializer": ProtobufFrameSerializer()}
    transport = FastAPIWebsocketTransport(websocket, FastAPIWebsocketParams(**options))
    context, llm = LLMContext(), RepeatingLLM()

    async def show(scene: str) -> None:
        await task.queue_frames(SCENES[scene]())

    rtvi = Configuration(config, context, LLMContextFrame, show).rtvi
    rtvi.add_event_handler("on_client_message", ShowAndTell(show, context, []).answer)
    register_functions(llm, rtvi)
    turns = UserTurnStrategies(stop=[SpeechTimeoutUserTurnStopStrategy(user_speech_timeout=0.2)])
    aggregators = LLMContextAggregatorPair(
        context, user_params=LLMUserAggregatorParams(vad_analyzer=LevelVAD(), user_turn_strategies=turns)
    )
    task = PipelineTask(
        Pipeline(
            [
                transport.input(),
                ScriptedSTT(["hello bot"]),
                aggregators.user(),
                llm,
                ToneTTS(),
                transport.output(),
                aggregators.assistant(),
            ]
        ),
        params=PipelineParams(enable_metrics=True, enable_usage_metrics=True),
        idle_timeout_secs=None,
        rtvi_processor=rtvi,
        rtvi_observer_params=RTVIObserverParams(
            bot_audio_level_enabled=True,
            user_audio_level_enabled=True,
            system_logs_enabled=True,
            function_call_report_level=LEVELS,
        ),
    )

    @transport.event_handler("on_client_disconnected")
    async def on_client_disconnected(*_: object) -> None:
        await task.cancel()

    with host.sessions.live(PipelineSession(task, transport)):
        await PipelineRunner(handle_sigint=False).run(task)


if __name__ == "__main__":
    add_configured_bot(host, bot)
    host.run()
