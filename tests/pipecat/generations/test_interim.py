"""Features of the bots between the generations: of RTVI 1.3, which had lost config and actions, and of RTVI 2.0."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rtvi_sync import RTVIEvent, UnsupportedFeatureError
from rtvi_sync.messages import (
    UIJobCompletedEnvelope,
    UIJobGroupCompletedEnvelope,
    UIJobGroupStartedEnvelope,
    UIJobUpdateEnvelope,
)
from tests.pipecat.clients import Watch, ask_until, client_of
from tests.pipecat.conftest import BotServer
from tests.support.slowness import GUARD

pytestmark = pytest.mark.matrix

JOBS = [
    UIJobGroupStartedEnvelope(kind="group_started", job_id="job-1", at=1, workers=("a",)),
    UIJobUpdateEnvelope(kind="job_update", job_id="job-1", at=2, worker_name="a", data={"progress": 0.5}),
    UIJobCompletedEnvelope(
        kind="job_completed", job_id="job-1", at=3, worker_name="a", status="completed", response=[1]
    ),
    UIJobGroupCompletedEnvelope(kind="group_completed", job_id="job-1", at=4),
]


@pytest.mark.parametrize(
    ("kind", "version", "type_"), [("interim-1.3", "1.3.0", "ui-task"), ("interim-2.0", "2.0.0", "ui-job-group")]
)
def test_jobs(pipecat_process: Callable[..., BotServer], kind: str, version: str, type_: str) -> None:
    """A group of jobs was one of tasks at first: programs are told the same of both, and cancel both alike."""
    client = client_of(pipecat_process(kind))
    with client.events(timeout=GUARD) as events:
        assert client.connect().version == version
        watch = Watch(events)
        client.send_client_request("show", "jobs")
        last = watch.until(RTVIEvent.UI_JOB_GROUP, lambda data: data.kind == "group_completed")
        client.cancel_ui_job_group("job-1", "user")
        [cancelled] = ask_until(client, "journal", 1)
        client.disconnect()
    assert watch.data(RTVIEvent.UI_JOB_GROUP) == JOBS
    assert last.message is not None
    assert last.message.type == type_
    key = type_.replace("ui-task", "ui-cancel-task").replace("ui-job-group", "ui-cancel-job-group")
    assert cancelled[key]["reason"] == "user"


def test_keys_of_rtvi_2_0(pipecat_process: Callable[..., BotServer]) -> None:
    """RTVI 2.0 takes one key per message, in a field of another name than later versions."""
    with client_of(pipecat_process("interim-2.0")) as client:
        client.send_dtmf("1*#")
        assert ask_until(client, "journal", 3) == [{"dtmf": "1"}, {"dtmf": "*"}, {"dtmf": "#"}]


def test_rtvi_1_without_config(pipecat_process: Callable[..., BotServer]) -> None:
    """By its version the bot might have a config and actions: it is asked once, and the client remembers the
    refusal."""
    with client_of(pipecat_process("interim-1.3")) as client:
        assert client.config is None
        with client.events(RTVIEvent.MESSAGE_ERROR) as errors:
            with pytest.raises(UnsupportedFeatureError, match="get-config"):
                client.get_config()
            with pytest.raises(UnsupportedFeatureError, match="Unsupported type describe-actions"):
                client.describe_actions()
            with pytest.raises(UnsupportedFeatureError, match="refused the type before"):
                client.describe_actions()
            client.disconnect()
            # Only sent messages were answered.
            assert [event.data.message for event in errors] == ["Unsupported type describe-actions"]
