"""A voice bot without key and cloud: Pipecat with PocketSphinx, rules and espeak-ng.

python3 run.py sample local_bot                    # serves http://localhost:7860, with the options of Pipecat's runner
python3 run.py sample ask_text --url http://localhost:7860 "What time is it?"

* Speech recognition: PocketSphinx (https://github.com/cmusphinx/pocketsphinx) with the English model in its package,
  and a grammar. It understands the sentences in `answers.py`, best in the voice of `questions.py`, and nothing else.
* Answers: rules in `answers.py`, with the functions `get_time` and `get_weather`; the weather is the same every day.
* Voice: espeak-ng (https://github.com/espeak-ng/espeak-ng), from the package `espeakng-loader`.

How clients get in, by the entries of `transport_params`:

* `websocket`: `POST /start` with `{"transport": "websocket"}`, then protobuf on ws://localhost:7860/ws-client
* `eval`: JSON on ws://localhost:7860/ws
* `webrtc`: `POST /start`, then an offer to `/sessions/<sessionId>/api/offer`. It needs `requirements-webrtc.txt`; where
  that cannot be installed, Pipecat's runner leaves this entry out.
"""

from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.audio.vad.vad_analyzer import VADParams
from pipecat.evals.transport import EvalTransportParams
from pipecat.frames.frames import LLMRunFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.processors.frameworks.rtvi import RTVIFunctionCallReportLevel, RTVIObserverParams
from pipecat.runner.types import RunnerArguments
from pipecat.runner.utils import create_transport
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.transports.base_transport import BaseTransport, TransportParams
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams
from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.workers.runner import WorkerRunner

from samples.local_bot.answers import GRAMMAR
from samples.local_bot.services import EspeakTTSService, PocketSphinxSTTService, RulesLLMService
from samples.local_bot.speech import RECOGNIZER_RATE_HZ, Recognizer, Voice

BOT_VOICE = "en-us+m1"

recognizer = Recognizer(GRAMMAR)
voice = Voice(BOT_VOICE)

# One entry for each way in: without `websocket` no protobuf client gets in, without `eval` no JSON client.
transport_params = {
    "eval": lambda: EvalTransportParams(audio_in_enabled=True, audio_out_enabled=True),
    "webrtc": lambda: TransportParams(audio_in_enabled=True, audio_out_enabled=True),
    "websocket": lambda: FastAPIWebsocketParams(
        audio_in_enabled=True, audio_out_enabled=True, serializer=ProtobufFrameSerializer()
    ),
}


async def run_bot(transport: BaseTransport, runner_args: RunnerArguments) -> None:
    """Hold one conversation."""
    # The grammar has whole sentences, so a short pause must not cut one in two.
    vad = SileroVADAnalyzer(params=VADParams(stop_secs=0.4))
    turns = UserTurnStrategies(stop=[SpeechTimeoutUserTurnStopStrategy(user_speech_timeout=0.2)])
    aggregators = LLMContextAggregatorPair(
        LLMContext(), user_params=LLMUserAggregatorParams(vad_analyzer=vad, user_turn_strategies=turns)
    )
    pipeline = Pipeline(
        [
            transport.input(),
            PocketSphinxSTTService(recognizer),
            aggregators.user(),
            RulesLLMService(),
            EspeakTTSService(voice),
            transport.output(),
            aggregators.assistant(),
        ]
    )
    worker = PipelineWorker(
        pipeline,
        params=PipelineParams(audio_in_sample_rate=RECOGNIZER_RATE_HZ, enable_metrics=True, enable_usage_metrics=True),
        idle_timeout_secs=runner_args.pipeline_idle_timeout_secs,
        # Without a level, clients learn that a function is called, but not which one.
        rtvi_observer_params=RTVIObserverParams(function_call_report_level={"*": RTVIFunctionCallReportLevel.FULL}),
    )

    @worker.rtvi.event_handler("on_client_ready")
    async def on_client_ready(_rtvi: object) -> None:
        await worker.queue_frames([LLMRunFrame()])

    @transport.event_handler("on_client_disconnected")
    async def on_client_disconnected(*_: object) -> None:
        await worker.cancel()

    runner = WorkerRunner(handle_sigint=runner_args.handle_sigint)
    await runner.add_workers(worker)
    await runner.run()


async def bot(runner_args: RunnerArguments) -> None:
    """Start a conversation. Pipecat's runner calls this for each client."""
    await run_bot(await create_transport(runner_args, transport_params), runner_args)


if __name__ == "__main__":
    from pipecat.runner.run import main

    main()
