"""Pipelines of Pipecat 1.14.0 over any of its WebSocket transports."""

from __future__ import annotations

from typing import Any

from answers import answer
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.transports.base_transport import BaseTransport
from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.workers.runner import WorkerRunner
from sounds import Echo, LevelVAD
from standins import RepeatingLLM, ScriptedSTT, ToneTTS


def transport_options() -> dict[str, Any]:
    """Return the parameters that every WebSocket transport here shares."""
    return {"audio_in_enabled": True, "audio_out_enabled": True, "serializer": ProtobufFrameSerializer()}


def echo_worker(transport: BaseTransport, **options: Any) -> PipelineWorker:
    """Return a bot that sends the user's audio back, at 16 kHz both ways so that nothing is resampled.

    It answers every client message with the number of pictures that it has sent back. `options` are Pipecat's for the
    worker.
    """
    params, echo = PipelineParams(audio_in_sample_rate=16000, audio_out_sample_rate=16000), Echo()
    worker = _worker([transport.input(), echo, transport.output()], params, **options)
    if options.get("enable_rtvi", True):

        @worker.rtvi.event_handler("on_client_message")
        async def count(rtvi: Any, message: Any) -> None:
            await rtvi.send_server_response(message, echo.pictures)

    return worker


def talk_worker(transport: BaseTransport, transcripts: list[str]) -> PipelineWorker:
    """Return a bot that listens, answers and speaks, and answers client messages."""
    worker = speaking_worker(transport, transcripts, LLMContext(), RepeatingLLM())
    worker.rtvi.add_event_handler("on_client_message", answer)
    return worker


def speaking_worker(
    transport: BaseTransport, transcripts: list[str], context: LLMContext, llm: RepeatingLLM, **options: Any
) -> PipelineWorker:
    """Return a bot that listens, answers and speaks; `options` are Pipecat's for the worker."""
    turns = UserTurnStrategies(stop=[SpeechTimeoutUserTurnStopStrategy(user_speech_timeout=0.2)])
    aggregators = LLMContextAggregatorPair(
        context, user_params=LLMUserAggregatorParams(vad_analyzer=LevelVAD(), user_turn_strategies=turns)
    )
    processors = [
        transport.input(),
        ScriptedSTT(transcripts),
        aggregators.user(),
        llm,
        ToneTTS(),
        transport.output(),
        aggregators.assistant(),
    ]
    return _worker(processors, PipelineParams(enable_metrics=True, enable_usage_metrics=True), **options)


def _worker(processors: list[FrameProcessor], params: PipelineParams, **options: Any) -> PipelineWorker:
    # A bot waits for its test, however long that takes: no idle timeout.
    return PipelineWorker(Pipeline(processors), params=params, idle_timeout_secs=None, **options)


async def run(worker: PipelineWorker, transport: BaseTransport) -> None:
    """Run a worker until it ends by itself or its client leaves."""

    @transport.event_handler("on_client_disconnected")
    async def on_client_disconnected(*_: object) -> None:
        await worker.cancel()

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await runner.run()
