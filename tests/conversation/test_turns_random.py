"""Conversations that no bot would have: messages in any order, lost or repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rtvi_sync import RTVIEvent, RTVIMessage
from rtvi_sync.conversation.tracker import OpenTurn, TurnTracker
from rtvi_sync.messages import BotLLMTextData
from rtvi_sync.protocol.dialects import INBOUND, decode_payload

pytestmark = pytest.mark.inside

WORDS = ("yes", "no", "One moment.", "It is 12.")


def segment(text: str, spoken: str, segment_id: int | None, status: str) -> dict[str, Any]:
    progress = {"accumulated_text": spoken, "remaining_text": text[len(spoken) :]}
    return {"text": text, "segment_id": segment_id, "spoken_status": status, "spoken_progress": progress}


words = st.sampled_from(WORDS)
flag = st.booleans()
ids = st.sampled_from(["a", "b", None])
inbound = st.one_of(
    st.sampled_from(
        [
            "user-started-speaking",
            "user-stopped-speaking",
            "bot-interrupted",
            "bot-llm-started",
            "bot-llm-stopped",
            "bot-started-speaking",
            "bot-stopped-speaking",
        ]
    ).map(lambda name: (name, None)),
    words.map(lambda text: ("user-llm-text", {"text": text})),
    st.tuples(words, flag).map(lambda each: ("user-transcription", {"text": each[0], "final": each[1]})),
    st.tuples(words, ids).map(
        lambda each: ("user-input", {"text": each[0], "input_type": "chat", "msg_id": each[1]}),
    ),
    words.map(lambda text: ("user-input", {"text": text, "input_type": "transcription"})),
    words.map(lambda text: ("bot-tts-text", {"text": text})),
    st.tuples(words, st.integers(0, 9), st.integers(0, 2), st.sampled_from(["new", "in-progress", "completed"])).map(
        lambda each: ("bot-output", segment(each[0], each[0][: each[1]], each[2] or None, each[3]))
    ),
    st.tuples(words, flag, flag).map(
        lambda each: ("bot-output", {"text": each[0], "spoken": each[1], "will_be_spoken": each[2] or None})
    ),
    st.just(("llm-function-call-started", {"function_name": "get"})),
    st.just(("llm-function-call-in-progress", {"tool_call_id": "1", "function_name": "get"})),
    flag.map(lambda cancelled: ("llm-function-call-stopped", {"tool_call_id": "1", "cancelled": cancelled})),
    st.just(("error", {"error": "no credits"})),
)
outbound = st.one_of(
    st.tuples(words, flag).map(
        lambda each: ("send-text", {"content": each[0], "options": {"run_immediately": each[1]}})
    ),
    st.just(("llm-function-call-result", {"tool_call_id": "1", "result": {}})),
)
step = st.one_of(
    st.tuples(st.just("in"), inbound),
    st.tuples(st.just("out"), outbound, ids),
    st.just(("model", "")),
    st.just(("wait", "")),
    st.just(("session", "")),
)


def let_all_time_pass(tracker: TurnTracker) -> Iterator[OpenTurn]:
    while tracker.due is not None:
        yield from tracker.pass_time(tracker.due)
    assert not any(turn.is_open for turn in tracker.turns)


@settings(suppress_health_check=[HealthCheck.too_slow])  # which a busy machine brings
@given(st.lists(step, max_size=60), st.sampled_from([None, (0, 3), (1, 2), (2, 0), (2, 2)]), flag)
def test_any_order(steps: list[Any], version: Any, audio_out: bool) -> None:
    """Each turn starts once and ends once, in the end no turn is open, and no word of the model is lost or doubled."""
    tracker = TurnTracker()
    tracker.start_session(audio_out=audio_out, version=version)
    begun, over = Counter[int](), Counter[int]()
    written: list[str] = []
    now = 100.0

    def took(turns: Iterable[OpenTurn]) -> None:
        for record in [turn.record() for turn in turns]:
            if record.status == "in_progress":
                begun[record.number] += 1
            else:
                over[record.number] += 1
                assert record.timings.ended is not None
                assert record.spoken_text == record.bot_text or record.status != "complete"

    for kind, *rest in steps:
        now += 0.5
        if kind == "in":
            type_, data = rest[0]
            spec = INBOUND[type_]
            assert spec.event is not None
            took(tracker.take(spec.event, now, decode_payload(spec, data)))
        elif kind == "model":
            written.append(f"<{len(written)}>")
            text = BotLLMTextData(text=written[-1])
            took(tracker.take(RTVIEvent.BOT_LLM_TEXT, now, text))
        elif kind == "out":
            (type_, data), message_id = rest
            took(tracker.sent(now, RTVIMessage(type_, data, message_id)))
        elif kind == "wait":
            if tracker.due is not None:
                now = max(now, tracker.due)
                took(tracker.pass_time(now))
        else:
            took(tracker.end_session(now))
            tracker.start_session(audio_out=audio_out, version=version)
    took(let_all_time_pass(tracker))
    took(tracker.end_session(now + 1))
    assert tracker.due is None
    turns = tracker.turns
    assert [turn.number for turn in turns] == [*range(1, len(turns) + 1)]
    assert all(turn.status != "in_progress" for turn in turns)
    assert set(over) == {turn.number for turn in turns}
    assert max([*over.values(), *begun.values()], default=1) == 1
    whole = "".join(turn.bot_text or "" for turn in turns)
    assert [whole.count(token) for token in written] == [1] * len(written)
