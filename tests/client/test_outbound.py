"""Messages whose form depends on the bot's version."""

from __future__ import annotations

import pytest

from rtvi_sync.client.message_builders import cancel_message, dtmf_messages


@pytest.mark.parametrize(
    ("version", "type_", "key"),
    [
        ("1.2.0", "ui-cancel-job-group", "job_id"),  # the gate refuses it
        ("1.3.0", "ui-cancel-task", "task_id"),
        ("1.4.0", "ui-cancel-job-group", "job_id"),
        ("2.2.0", "ui-cancel-job-group", "job_id"),
        ("", "ui-cancel-job-group", "job_id"),
        (None, "ui-cancel-job-group", "job_id"),
    ],
)
def test_cancelling_a_job_group(version: str | None, type_: str, key: str) -> None:
    """A bot of 1.3 is told in its own words; a reason is sent where there is one."""
    message = cancel_message("job-1", "user", version)
    assert (message.type, message.data) == (type_, {key: "job-1", "reason": "user"})
    assert cancel_message("job-1", None, version).data == {key: "job-1"}


@pytest.mark.parametrize(
    ("version", "data"),
    [
        ("2.0.0", [{"button": "1"}, {"button": "#"}]),
        ("2.1.0", [{"buttons": ["1", "#"]}]),
        ("2.2.0", [{"buttons": ["1", "#"]}]),
        ("", [{"buttons": ["1", "#"]}]),
        (None, [{"buttons": ["1", "#"]}]),
    ],
)
def test_keys_of_a_telephone(version: str | None, data: list[dict[str, object]]) -> None:
    """One message for all keys, or one for each where the bot takes no more."""
    messages = list(dtmf_messages("1#", version))
    assert [message.data for message in messages] == data
    assert {message.type for message in messages} == {"dtmf"}
