"""Pipecat 0.0.73 behind FastAPI: its next session follows a script that was posted. See scripted.py."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable
from typing import Any

from acting import Acting, Failing, Reader, ScriptedHost, greet, register
from fastapi import WebSocket
from pipecat.frames.frames import (
    Frame,
    InterimTranscriptionFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.aggregators.openai_llm_context import OpenAILLMContext, OpenAILLMContextFrame
from pipecat.processors.frameworks.rtvi import (
    RTVIAction,
    RTVIActionArgument,
    RTVIConfig,
    RTVIObserver,
    RTVIProcessor,
)
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.services.openai.llm import OpenAIAssistantContextAggregator, OpenAIUserContextAggregator
from pipecat.services.tts_service import WordTTSService
from pipecat.transports.network.fastapi_websocket import FastAPIWebsocketParams, FastAPIWebsocketTransport
from pipecat.utils.time import time_now_iso8601
from script import Script
from session import PipelineSession
from sounds import WORD_SECONDS, LevelVAD, tone
from standins_0_3 import RepeatingLLM, ScriptedSTT, ToneTTS

host = ScriptedHost()


# Before Python 3.12 `asyncio.wait_for()` may swallow a cancellation, and then this version of Pipecat waits for ever
# for the end of its audio task: once in about a hundred interruptions.
if sys.version_info[:2] == (3, 11):

    async def wait_for(awaitable: Awaitable[Any], timeout: float | None) -> Any:
        async with asyncio.timeout(timeout):
            return await awaitable

    asyncio.wait_for = wait_for


class ActingLLM(Acting, RepeatingLLM):
    """Follows the script."""


class SlowSTT(ScriptedSTT):
    """Hears the transcripts of the script, and takes its time."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script
        self._heard = 0

    async def run_stt(self, audio: bytes) -> AsyncGenerator[Frame, None]:
        text = self._script.hears[self._heard % len(self._script.hears)]
        self._heard += 1
        await asyncio.sleep(self._script.hears_after)
        yield InterimTranscriptionFrame(text.split()[0], "", time_now_iso8601())
        yield TranscriptionFrame(text, "", time_now_iso8601())


class WordTTS(WordTTSService):
    """Speaks a word as a tone, with the time of each word."""

    def __init__(self) -> None:
        super().__init__(push_text_frames=False, push_stop_frames=True)
        self._spoken_words = 0

    async def run_tts(self, text: str) -> AsyncGenerator[Frame, None]:
        if self._initial_word_timestamp == -1:
            self._spoken_words = 0
            yield TTSStartedFrame()
        self.start_word_timestamps()
        for word in text.split():
            await self.add_word_timestamps([(word, self._spoken_words * WORD_SECONDS)])
            yield TTSAudioRawFrame(tone(self._spoken_words, self.sample_rate), self.sample_rate, 1)
            self._spoken_words += 1

    async def flush_audio(self) -> None:
        await self.add_word_timestamps([("Reset", 0)])


class WordVoice(Failing, WordTTS):
    """Tells the time of each word."""


class SentenceVoice(Failing, ToneTTS):
    """Tells no times."""


VOICES: dict[str, Any] = {"word": WordVoice, "sentence": SentenceVoice}


def appending(context: OpenAILLMContext) -> RTVIProcessor:
    """Return a processor with the action by which the bots of that time were asked by text."""
    rtvi = RTVIProcessor(config=RTVIConfig(config=[]))

    async def append(_rtvi: RTVIProcessor, _service: str, given: dict[str, Any]) -> bool:
        if given.get("run_immediately"):
            await rtvi.interrupt_bot()
        context.add_messages(given["messages"])
        if given.get("run_immediately"):
            await rtvi.push_frame(OpenAILLMContextFrame(context))
        return True

    arguments = [
        RTVIActionArgument(name="messages", type="array"),
        RTVIActionArgument(name="run_immediately", type="bool"),
    ]
    rtvi.register_action(
        RTVIAction(service="llm", action="append_to_messages", arguments=arguments, result="bool", handler=append)
    )
    return rtvi


async def bot(websocket: WebSocket) -> None:
    script = host.script
    options = {"audio_in_enabled": True, "audio_out_enabled": script.audio_out, "serializer": ProtobufFrameSerializer()}
    transport = FastAPIWebsocketTransport(websocket, FastAPIWebsocketParams(vad_analyzer=LevelVAD(), **options))
    context, llm = OpenAILLMContext(), ActingLLM(script)
    rtvi = appending(context)
    register(script, llm, rtvi)
    processors = [
        transport.input(),
        rtvi,
        SlowSTT(script),
        OpenAIUserContextAggregator(context),
        llm if script.model else Reader(script, OpenAILLMContextFrame),
        *([] if script.voice is None else [VOICES[script.voice](script.voice_fails)]),
        transport.output(),
        OpenAIAssistantContextAggregator(context),
    ]
    task = PipelineTask(
        Pipeline(processors),
        params=PipelineParams(allow_interruptions=True, enable_metrics=True, enable_usage_metrics=True),
        observers=[RTVIObserver(rtvi)],
        idle_timeout_secs=None,
    )
    gone = asyncio.Event()
    cancellations = []

    @rtvi.event_handler("on_client_ready")
    async def on_client_ready(rtvi: RTVIProcessor) -> None:
        await rtvi.set_bot_ready()
        await greet(script, task, context, OpenAILLMContextFrame(context))

    @transport.event_handler("on_client_disconnected")
    async def on_client_disconnected(*_: object) -> None:
        # Not awaited here: a pipeline that ends by itself waits for this handler.
        cancellations.append(asyncio.create_task(task.cancel()))
        gone.set()

    host.task = task
    with host.sessions.live(PipelineSession(task, transport)):
        running = asyncio.create_task(PipelineRunner(handle_sigint=False).run(task))
        leaving = asyncio.create_task(gone.wait())
        await asyncio.wait([running, leaving], return_when=asyncio.FIRST_COMPLETED)
        # When a client leaves as the bot starts to speak, the pipeline of this version never ends.
        await asyncio.wait([running], timeout=0.5)
        leaving.cancel()


if __name__ == "__main__":
    host.add_bot(bot)
    host.run()
