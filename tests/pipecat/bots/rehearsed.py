"""A bot in Pipecat's runner that obeys the user's words: for scenario files.

The words are steps, with ``|`` between them, and a step is one of these; anything else is answered "You said: ...".

    say TEXT            writes it
    then                ends the response of the model, and starts the next one
    wait MS             does nothing for a while
    call NAME JSON      calls a function (see functions.py); nothing behind it is done
    later MS TEXT       ends; after a while the model writes the text unasked
    marker KIND TEXT    reports a marker that it has found in the text
    image               shows one
    look                asks for the user's camera, and writes the answer
    mhm TEXT, hm TEXT   a backchannel of the bot, and of the user
    recall              writes the first message of its context
    fail TEXT           reports an error, as a service does whose model cannot be reached
    bye                 ends the session

A context whose first message is "greet TEXT" is answered at once. All speech of the user is heard as "hello bot".
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import wave
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from functions import register_functions
from pipecat.evals.transport import EvalTransportParams
from pipecat.frames.frames import (
    BotBackchannelFrame,
    EndTaskFrame,
    Frame,
    FunctionCallFromLLM,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMarkerResponseFrame,
    LLMMessagesUpdateFrame,
    LLMRunFrame,
    OutputImageRawFrame,
    TTSAudioRawFrame,
    UserBackchannelFrame,
    UserImageRawFrame,
    UserImageRequestFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.dtmf_aggregator import DTMFAggregator
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.runner.run import app, main
from pipecat.runner.types import RunnerArguments
from pipecat.runner.utils import create_transport
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TTSService
from pipecat.transports.base_transport import TransportParams
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams
from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.utils.time import time_now_iso8601
from pipelines import run
from serving import Host
from session import PipelineSession
from sounds import LevelVAD
from standins import RepeatingLLM, ScriptedSTT
from wits import _text

SPEECH = Path(__file__).parents[3] / "rtvi_sync" / "cli" / "speech.wav"
SPOKEN_SECONDS = 1.5
MARKERS = {"complete": "✓", "short": "○", "long": "◐"}
AUDIO = {"audio_in_enabled": True, "audio_out_enabled": True}
transport_params = {
    "eval": lambda: EvalTransportParams(**AUDIO),
    "webrtc": lambda: TransportParams(**AUDIO),
    "websocket": lambda: FastAPIWebsocketParams(serializer=ProtobufFrameSerializer(), **AUDIO),
    "twilio": lambda: FastAPIWebsocketParams(**AUDIO),
}
host = Host(app)


class RehearsedLLM(RepeatingLLM):
    """Obeys the user's words.

    Attributes:
        worker: of its pipeline.
        greeting: its next text, whatever the user has said; "": nothing.
    """

    worker: Any = None
    greeting = ""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        if isinstance(frame, UserImageRawFrame):
            await self._write(f"I see {frame.size[0]} by {frame.size[1]}.")
            await self.push_frame(LLMFullResponseEndFrame())
            return
        await super().process_frame(frame, direction)

    async def answer(self, context: Any) -> None:
        messages = context.get_messages()
        words = self.greeting or _text(messages[-1]["content"])
        is_plain = messages[-1]["role"] == "tool" or not words.startswith(STEPS)
        if is_plain and not self.greeting:
            await super().answer(context)
            return
        self.greeting = ""
        for step in words.split(" | "):
            word, _, rest = step.partition(" ")
            await getattr(self, "_words" if word == "say" else f"_{word}")(rest, context)

    async def _write(self, text: str) -> None:
        for number, token in enumerate(text.split()):
            await self._push_llm_text(f" {token}" if number else token)

    async def _words(self, text: str, _: Any) -> None:
        await self._write(text)

    async def _then(self, *_: Any) -> None:
        await self.push_frame(LLMFullResponseEndFrame())
        await self.push_frame(LLMFullResponseStartFrame())

    async def _wait(self, milliseconds: str, _: Any) -> None:
        await asyncio.sleep(int(milliseconds) / 1000)

    async def _call(self, what: str, context: Any) -> None:
        name, _, given = what.partition(" ")
        call_id = f"call_{next(self._calls)}"
        await self.run_function_calls([FunctionCallFromLLM(name, call_id, json.loads(given or "{}"), context)])

    async def _later(self, what: str, _: Any) -> None:
        milliseconds, _, text = what.partition(" ")

        async def speak() -> None:
            await asyncio.sleep(int(milliseconds) / 1000)
            self.greeting = f"say {text}"
            await self.worker.queue_frame(LLMRunFrame())

        self.create_task(speak())

    async def _marker(self, what: str, _: Any) -> None:
        kind, _, text = what.partition(" ")
        marker = MARKERS.get(kind)
        raw = text.replace("COMPLETE", "✓").replace("SHORT", "○").replace("LONG", "◐")
        await self.push_frame(
            LLMMarkerResponseFrame(
                raw=raw, marker=marker, kind=kind if marker else None, markers=list(MARKERS.values())
            )
        )

    async def _image(self, *_: Any) -> None:
        await self.push_frame(OutputImageRawFrame(image=bytes(3 * 4 * 2), size=(4, 2), format="RGB"))

    async def _look(self, *_: Any) -> None:
        await self.push_frame(UserImageRequestFrame(user_id="user"), FrameDirection.UPSTREAM)

    async def _mhm(self, text: str, _: Any) -> None:
        await self.push_frame(BotBackchannelFrame(text))

    async def _hm(self, text: str, _: Any) -> None:
        await self.push_frame(UserBackchannelFrame(text, "user", time_now_iso8601()))

    async def _recall(self, _: str, context: Any) -> None:
        await self._write(f"It was: {_text(context.get_messages()[0]['content'])}")

    async def _fail(self, text: str, _: Any) -> None:
        await self.push_error(error_msg=text)

    async def _bye(self, *_: Any) -> None:
        await self.push_frame(EndTaskFrame(), FrameDirection.UPSTREAM)


STEPS = ("say", "then", "wait ", "call ", "later ", "marker ", "image", "look", "mhm ", "hm ", "recall", "fail ", "bye")


class Greeter(FrameProcessor):
    """Has the model greet as its new context says."""

    def __init__(self, llm: RehearsedLLM) -> None:
        super().__init__()
        self._llm = llm

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        await self.push_frame(frame, direction)
        if isinstance(frame, LLMMessagesUpdateFrame):
            first = _text(frame.messages[0]["content"])
            if first.startswith("greet "):
                self._llm.greeting = f"say {first.removeprefix('greet ')}"
                await self.push_frame(LLMRunFrame())


class SpeechTTS(TTSService):
    """Speaks 1.5 s of recorded speech for each sentence, whatever its words are."""

    def __init__(self) -> None:
        settings = TTSSettings(model="speech-tts", voice="recorded", language=None)
        super().__init__(push_start_frame=True, push_stop_frames=True, stop_frame_timeout_s=0.5, settings=settings)
        with wave.open(str(SPEECH)) as file:
            rate = file.getframerate()
            samples = np.frombuffer(file.readframes(int(SPOKEN_SECONDS * rate)), "<i2")
        self._speech, self._rate = samples, rate

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        moments = np.arange(int(SPOKEN_SECONDS * self.sample_rate)) * self._rate / self.sample_rate
        pcm = np.interp(moments, np.arange(len(self._speech)), self._speech).astype("<i2").tobytes()
        yield TTSAudioRawFrame(pcm, self.sample_rate, 1, context_id=context_id)


async def bot(runner_args: RunnerArguments) -> None:
    """Run the bot; the runner calls this for each connection."""
    transport = await create_transport(runner_args, transport_params)
    context, llm = LLMContext(), RehearsedLLM()
    turns = UserTurnStrategies(stop=[SpeechTimeoutUserTurnStopStrategy(user_speech_timeout=0.2)])
    aggregators = LLMContextAggregatorPair(
        context, user_params=LLMUserAggregatorParams(vad_analyzer=LevelVAD(), user_turn_strategies=turns)
    )
    processors = [
        transport.input(),
        Greeter(llm),
        DTMFAggregator(timeout=0.3),
        ScriptedSTT(["hello bot"]),
        aggregators.user(),
        llm,
        SpeechTTS(),
        transport.output(),
        aggregators.assistant(),
    ]
    worker = PipelineWorker(Pipeline(processors), params=PipelineParams(), idle_timeout_secs=None)
    llm.worker = worker
    register_functions(llm, worker.rtvi)
    with host.sessions.live(PipelineSession(worker, transport)):
        await run(worker, transport)


if __name__ == "__main__":
    for name in ("TWILIO_ACCOUNT_SID", "TWILIO_AUTH_TOKEN"):
        os.environ.setdefault(name, "none")  # the serializer wants some, and uses them to hang up
    # The runner can be given the number of a port, not a socket that already listens on a port found free.
    uvicorn.run = lambda *_, **__: host.run()
    sys.argv[1:1] = ["--host", "localhost", "--port", str(host.port)]
    main()
