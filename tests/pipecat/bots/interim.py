"""Pipecat 1.2.1 (RTVI 1.3) or 1.5.0 (RTVI 2.0) behind FastAPI: for features of the versions between. It does not talk.

The client message `show` has it report a group of jobs, and `journal` Pipecat's record of the client's messages.
"""

from __future__ import annotations

from typing import Any

from answers import ShowAndTell
from fastapi import WebSocket
from pipecat.frames.frames import Frame, InputDTMFFrame
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frameworks.rtvi import RTVIProcessor, frames, models
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport
from serving import Host
from session import PipelineSession

host = Host()


class Journal(BaseObserver):
    """Pipecat's record of the client's messages."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Any] = []
        self._seen: set[int] = set()

    async def on_push_frame(self, data: FramePushed) -> None:
        if isinstance(data.frame, InputDTMFFrame) and data.frame.id not in self._seen:
            self._seen.add(data.frame.id)
            self.entries.append({"dtmf": data.frame.button.value})

    async def on_ui_message(self, rtvi: RTVIProcessor, message: Any) -> None:
        self.entries.append({message.type: message.data.model_dump(exclude_none=True)})


def jobs() -> list[Frame]:
    """Return a group of jobs: of tasks, as they were called at first."""
    if hasattr(frames, "RTVIUIJobGroupFrame"):
        steps = [
            models.UIJobGroupStartedData(job_id="job-1", workers=["a"], at=1),
            models.UIJobUpdateData(job_id="job-1", worker_name="a", data={"progress": 0.5}, at=2),
            models.UIJobCompletedData(job_id="job-1", worker_name="a", status="completed", response=[1], at=3),
            models.UIJobGroupCompletedData(job_id="job-1", at=4),
        ]
        return [frames.RTVIUIJobGroupFrame(data=step) for step in steps]
    steps = [
        models.UITaskGroupStartedData(task_id="job-1", agents=["a"], at=1),
        models.UITaskUpdateData(task_id="job-1", agent_name="a", data={"progress": 0.5}, at=2),
        models.UITaskCompletedData(task_id="job-1", agent_name="a", status="completed", response=[1], at=3),
        models.UITaskGroupCompletedData(task_id="job-1", at=4),
    ]
    return [frames.RTVIUITaskFrame(data=step) for step in steps]


async def bot(websocket: WebSocket) -> None:
    options = {"audio_in_enabled": True, "audio_out_enabled": True, "serializer": ProtobufFrameSerializer()}
    transport = FastAPIWebsocketTransport(websocket, FastAPIWebsocketParams(**options))
    journal = Journal()
    task = PipelineTask(
        Pipeline([transport.input(), transport.output()]),
        params=PipelineParams(),
        observers=[journal],
        idle_timeout_secs=None,
    )

    async def show(_scene: str) -> None:
        await task.queue_frames(jobs())

    task.rtvi.add_event_handler("on_client_message", ShowAndTell(show, LLMContext(), journal.entries).answer)
    task.rtvi.add_event_handler("on_ui_message", journal.on_ui_message)

    @transport.event_handler("on_client_disconnected")
    async def on_client_disconnected(*_: object) -> None:
        await task.cancel()

    with host.sessions.live(PipelineSession(task, transport)):
        await PipelineRunner(handle_sigint=False).run(task)


if __name__ == "__main__":
    host.add_bot(bot)
    host.run()
