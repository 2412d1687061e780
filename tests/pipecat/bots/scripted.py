"""Pipecat 1.14.0, 1.5.0 or 0.0.108 behind FastAPI: its next session follows a script that was posted.

Telephone providers call it at ``/call``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

with contextlib.suppress(ModuleNotFoundError):  # only 0.0.108 needs it
    import sentences  # noqa: F401

# isort: split
from acting import Acting, Failing, Reader, ScriptedHost, greet, register
from external import HearingLLM, HearingSTT
from fastapi import WebSocket
from pipecat.frames.frames import Frame, LLMContextFrame, LLMRunFrame, TTSAudioRawFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.processors.frameworks.rtvi import RTVIFunctionCallReportLevel, RTVIObserverParams
from pipecat.runner.types import WebSocketRunnerArguments
from pipecat.runner.utils import create_transport
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TTSService
from pipecat.transports.base_transport import BaseTransport
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport
from pipecat.turns.user_mute import (
    AlwaysUserMuteStrategy,
    FunctionCallUserMuteStrategy,
    MuteUntilFirstBotCompleteUserMuteStrategy,
)
from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import ExternalUserTurnStrategies, UserTurnStrategies
from script import Script
from session import PipelineSession
from sounds import LevelVAD, tone
from standins import RepeatingLLM, ScriptedSTT, ToneTTS

with contextlib.suppress(ImportError):  # 0.0.108 has no such strategies
    from pipecat.turns.user_turn_completion_mixin import UserTurnCompletionConfig
    from pipecat.turns.user_turn_strategies import FilterIncompleteUserTurnStrategies

host = ScriptedHost()


class ActingLLM(Acting, RepeatingLLM):
    """Follows the script."""


class DecidingLLM(ActingLLM):
    """Decides first whether the user has finished."""

    _marker = ""

    async def answer(self, context: Any) -> None:
        markers = UserTurnCompletionConfig()
        if self.script.is_unfinished(context.get_messages()):
            await self.write(markers.incomplete_short_marker)
            return
        self._marker = f"{markers.complete_marker} "
        await super().answer(context)

    async def write(self, token: str) -> None:
        marker, self._marker = self._marker, ""
        await self._push_llm_text(marker + token)


class SlowSTT(ScriptedSTT):
    """Takes its time."""

    def __init__(self, script: Script) -> None:
        super().__init__(script.hears)
        self._seconds = script.hears_after

    async def run_stt(self, audio: bytes) -> AsyncGenerator[Frame | None, None]:
        await asyncio.sleep(self._seconds)
        async for frame in super().run_stt(audio):
            yield frame


class SentenceTTS(TTSService):
    """Speaks a word as a tone, without the time of each word."""

    def __init__(self) -> None:
        settings = TTSSettings(model="tone-tts", voice="tone", language=None)
        super().__init__(push_start_frame=True, push_stop_frames=True, stop_frame_timeout_s=0.5, settings=settings)

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        for n, _ in enumerate(text.split()):
            yield TTSAudioRawFrame(tone(n, self.sample_rate), self.sample_rate, 1, context_id=context_id)


class WordVoice(Failing, ToneTTS):
    """Tells the time of each word."""


class SentenceVoice(Failing, SentenceTTS):
    """Tells no times."""


MUTES: dict[str, Any] = {
    "speech": AlwaysUserMuteStrategy,
    "first": MuteUntilFirstBotCompleteUserMuteStrategy,
    "functions": FunctionCallUserMuteStrategy,
}
VOICES: dict[str, Any] = {"word": WordVoice, "sentence": SentenceVoice}


PROVIDERS = ("twilio", "telnyx", "plivo", "exotel")


async def bot(websocket: WebSocket) -> None:
    options = {"audio_in_enabled": True, "audio_out_enabled": host.script.audio_out}
    params = FastAPIWebsocketParams(serializer=ProtobufFrameSerializer(), **options)
    await converse(FastAPIWebsocketTransport(websocket, params))


@host.app.websocket("/call")
async def call(websocket: WebSocket) -> None:
    await websocket.accept()
    entry = partial(FastAPIWebsocketParams, audio_in_enabled=True, audio_out_enabled=True)
    arguments = WebSocketRunnerArguments(websocket=websocket)
    await converse(await create_transport(arguments, dict.fromkeys(PROVIDERS, entry)), is_call=True)


async def converse(transport: BaseTransport, *, is_call: bool = False) -> None:
    script = host.script
    context = LLMContext()
    stt: list[FrameProcessor] = [HearingSTT(script) if script.hearing == "stt" else SlowSTT(script)]
    llm = DecidingLLM(script) if script.decides else ActingLLM(script)
    tts: list[FrameProcessor] = [] if script.voice is None else [VOICES[script.voice](script.voice_fails)]
    if script.hearing in ("model", "realtime"):
        stt, llm, tts = [], HearingLLM(script), []
    stop = [SpeechTimeoutUserTurnStopStrategy(user_speech_timeout=script.waits)]
    turns = UserTurnStrategies(stop=stop)
    if script.decides:
        config = UserTurnCompletionConfig(incomplete_short_timeout=1.0, incomplete_short_prompt="Go on?")
        turns = FilterIncompleteUserTurnStrategies(stop=stop, config=config)
    user_params = LLMUserAggregatorParams(
        vad_analyzer=LevelVAD(),
        user_turn_strategies=turns,
        user_turn_stop_timeout=script.gives_up,
        user_mute_strategies=[MUTES[script.mutes]()] if script.mutes else [],
    )
    if script.hearing != "vad":
        user_params = LLMUserAggregatorParams(user_turn_strategies=ExternalUserTurnStrategies())
    is_realtime = {"realtime_service_mode": True} if script.hearing == "realtime" else {}
    aggregators = LLMContextAggregatorPair(context, user_params=user_params, **is_realtime)
    processors = [
        transport.input(),
        *stt,
        aggregators.user(),
        llm if script.model else Reader(script, LLMContextFrame),
        *tts,
        transport.output(),
        aggregators.assistant(),
    ]
    task = PipelineTask(
        Pipeline(processors),
        params=PipelineParams(enable_metrics=True, enable_usage_metrics=True),
        idle_timeout_secs=None,
        rtvi_observer_params=RTVIObserverParams(
            function_call_report_level={"*": RTVIFunctionCallReportLevel(script.report)}, **script.observed
        ),
    )
    if script.model:
        register(script, llm, task.rtvi)

    @task.rtvi.event_handler("on_client_ready")
    async def on_client_ready(*_: object) -> None:
        await greet(script, task, context, LLMRunFrame())

    @transport.event_handler("on_client_connected")
    async def on_client_connected(*_: object) -> None:
        if is_call:
            await greet(script, task, context, LLMRunFrame())

    @transport.event_handler("on_client_disconnected")
    async def on_client_disconnected(*_: object) -> None:
        await task.cancel()

    host.task = task
    with host.sessions.live(PipelineSession(task, transport)):
        await PipelineRunner(handle_sigint=False).run(task)


if __name__ == "__main__":
    for name in ("TWILIO_ACCOUNT_SID", "TWILIO_AUTH_TOKEN", "TELNYX_API_KEY", "PLIVO_AUTH_ID", "PLIVO_AUTH_TOKEN"):
        os.environ.setdefault(name, "none")  # the serializers want some, and use them to hang up
    host.add_bot(bot)
    host.run()
