"""Events: their names, and the record that carries them."""

from __future__ import annotations

import copy
import pickle
import re

import attrs
import pytest

from rtvi_sync.events import Event, RTVIEvent, event_from
from rtvi_sync.messages import RTVIMessage

# Values of the enum RTVIEvent of the published packages @pipecat-ai/client-js 0.3.2 and 1.13.0.
CLIENT_JS_0_3_2 = """
    messageError error connected disconnected transportStateChanged config configDescribe actionsAvailable
    participantConnected participantLeft trackStarted trackStopped screenTrackStarted screenTrackStopped
    screenShareError availableCamsUpdated availableMicsUpdated availableSpeakersUpdated camUpdated micUpdated
    speakerUpdated botConnected botReady botDisconnected botStartedSpeaking botStoppedSpeaking remoteAudioLevel
    userStartedSpeaking userStoppedSpeaking localAudioLevel metrics userTranscript botTranscript botLlmText
    botLlmStarted botLlmStopped botTtsText botTtsStarted botTtsStopped llmFunctionCall llmFunctionCallStart
    llmJsonCompletion storageItemStored
"""
CLIENT_JS_1_13_0 = """
    connected disconnected transportStateChanged botStarted botConnected botReady botDisconnected error serverMessage
    serverResponse messageError uiCommand uiJobGroup metrics botStartedSpeaking botStoppedSpeaking
    userStartedSpeaking userStoppedSpeaking userMuteStarted userMuteStopped userTranscript botOutput botTranscript
    userLlmText botLlmText botLlmStarted botLlmStopped llmFunctionCall llmFunctionCallStarted
    llmFunctionCallInProgress llmFunctionCallStopped botLlmSearchResponse botTtsText botTtsStarted botTtsStopped
    participantConnected participantLeft trackStarted trackStopped screenTrackStarted screenTrackStopped
    screenShareError localAudioLevel remoteAudioLevel availableCamsUpdated availableMicsUpdated
    availableSpeakersUpdated camUpdated micUpdated speakerUpdated deviceError mediaStateUpdated unsupportedFeature
"""
INTERFACE = ["connected", "disconnected", "transportStateChanged", "botReady", "configUpdated", "messageError"]


@pytest.mark.parametrize("value", sorted({*CLIENT_JS_0_3_2.split(), *CLIENT_JS_1_13_0.split(), *INTERFACE}))
def test_every_event_of_the_javascript_clients_exists(value: str) -> None:
    """An event of either generation of client-js has the same value here."""
    assert RTVIEvent(value).value == value


def test_the_lists_above_are_whole() -> None:
    """The lists have as many entries as the published enums, so that none was lost in copying."""
    assert len(set(CLIENT_JS_0_3_2.split())) == 43
    assert len(set(CLIENT_JS_1_13_0.split())) == 53


@pytest.mark.parametrize("event", RTVIEvent)
def test_value_and_snake_name_say_the_same(event: RTVIEvent) -> None:
    """The value of an event is its snake_case name in camelCase."""
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", event.snake)
    assert re.sub(r"_(.)", lambda match: match[1].upper(), event.snake) == event.value


def test_snake_names_are_distinct() -> None:
    """No two events share a signal."""
    assert len({event.snake for event in RTVIEvent}) == len(RTVIEvent)


def test_str_and_format_give_the_value() -> None:
    """An event prints as its value on every Python version."""
    assert str(RTVIEvent.BOT_READY) == "botReady"
    assert f"{RTVIEvent.BOT_READY}" == "botReady"


def spellings_of(event: RTVIEvent) -> tuple[str, ...]:
    """Return the names of an event that every door takes."""
    pascal = event.value[0].upper() + event.value[1:]
    python = event.snake, event.name, f"on_{event.snake}"
    return event.value, *python, event.snake.replace("_", "-"), pascal, f"on{pascal}"


@pytest.mark.parametrize("event", RTVIEvent)
def test_event_from_takes_every_spelling(event: RTVIEvent) -> None:
    """Member, value, snake_case, enum name, kebab-case and the names of interface and callback all name the event, make
    it and equal it."""
    assert event_from(event) is event
    for spelling in spellings_of(event):
        assert event_from(spelling) is RTVIEvent(spelling) is event
        assert event == spelling
        assert spelling == event
        assert not event != spelling  # noqa: SIM202 - a method of its own
        assert not spelling != event  # noqa: SIM202


OTHER_NAMES = pytest.mark.parametrize(
    ("name", "event"),
    [
        ("bot_text", RTVIEvent.BOT_LLM_TEXT),
        ("BOT_TEXT", RTVIEvent.BOT_LLM_TEXT),
        ("config_update", RTVIEvent.CONFIG_UPDATED),
        ("generic_message", RTVIEvent.UNKNOWN_MESSAGE),
        ("media_state_changed", RTVIEvent.MEDIA_STATE_UPDATED),
        ("participant_joined", RTVIEvent.PARTICIPANT_CONNECTED),
        ("bot-transcription", RTVIEvent.BOT_TRANSCRIPT),
        ("user-transcription", RTVIEvent.USER_TRANSCRIPT),
        ("config-available", RTVIEvent.CONFIG_DESCRIBE),
        ("error-response", RTVIEvent.MESSAGE_ERROR),
        ("onBotText", RTVIEvent.BOT_LLM_TEXT),
        ("onConfigUpdate", RTVIEvent.CONFIG_UPDATED),
        ("on_config_update", RTVIEvent.CONFIG_UPDATED),
    ],
)


@OTHER_NAMES
def test_event_from_takes_the_names_of_callbacks_and_the_wire(name: str, event: RTVIEvent) -> None:
    """Where a callback or a wire type is called otherwise than its event, that name works too."""
    assert event_from(name) is RTVIEvent(name) is event
    assert event == name


def test_an_event_equals_no_other_name() -> None:
    """An event differs from the name of another event, an unknown name, and anything that is not a string."""
    event = RTVIEvent.BOT_READY
    for other in (RTVIEvent.BOT_OUTPUT, "bot-output", "Bot-Ready", "bot_redy", "", b"botReady", 5, None):
        assert event != other
        assert other != event
        assert not event == other  # noqa: SIM201 - a method of its own
    assert sum(event == other for other in RTVIEvent) == 1


def test_an_event_is_found_by_any_name_where_equality_decides() -> None:
    """In sequences and match statements any name will do."""
    assert RTVIEvent.BOT_STOPPED_SPEAKING in ["bot-output", "bot-stopped-speaking"]
    assert "bot_ready" in list(RTVIEvent)
    match RTVIEvent.BOT_READY:
        case "bot-output":
            found = "another"
        case "bot-ready":
            found = "the event"
        case _:
            found = "none"
    assert found == "the event"
    match "bot-ready":
        case RTVIEvent.BOT_READY:
            found = "the member"
    assert found == "the member"


@pytest.mark.parametrize("event", RTVIEvent)
def test_an_event_has_the_hash_of_its_value(event: RTVIEvent) -> None:
    """As a key of a dict an event and its value are one; for other names `RTVIEvent()` makes the event."""
    assert hash(event) == hash(event.value)
    known = {event: 1}
    assert known[event] == known[RTVIEvent(event.snake)] == known[event.value] == 1  # type: ignore[index]
    assert {event.value: 1}[event] == 1
    assert event in {event.value}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_event_stays_itself_when_pickled_or_copied(protocol: int) -> None:
    """Each process has one object for an event."""
    for event in RTVIEvent:
        assert pickle.loads(pickle.dumps(event, protocol)) is copy.deepcopy(event) is event


@pytest.mark.parametrize("value", [5, None, b"botReady", ["botReady"]])
def test_only_a_name_makes_an_event(value: object) -> None:
    """Anything that is not a string is no value of the enum, as for any other enum."""
    with pytest.raises(ValueError, match="is not a valid RTVIEvent"):
        RTVIEvent(value)


def test_aliases_are_no_events_of_their_own() -> None:
    """`BOT_TEXT` is `BOT_LLM_TEXT` itself, and iteration shows it once."""
    assert RTVIEvent.BOT_TEXT is RTVIEvent.BOT_LLM_TEXT  # type: ignore[comparison-overlap]
    assert [event.name for event in RTVIEvent].count("BOT_LLM_TEXT") == 1
    assert "BOT_TEXT" not in [event.name for event in RTVIEvent]


def test_a_misspelt_event_gets_a_suggestion() -> None:
    """The error names the event that was probably meant."""
    for make in (event_from, RTVIEvent):
        with pytest.raises(ValueError, match="'bot_redy'; the nearest is 'bot_ready'"):
            make("bot_redy")


def test_a_name_like_none_gets_no_suggestion() -> None:
    """Where nothing is near, the error says where to look, and quotes no more than a piece of a huge name."""
    with pytest.raises(ValueError, match="RTVIEvent lists them all") as caught:
        event_from("9" * 1_000_000)
    assert len(str(caught.value)) < 200


def test_an_event_is_named_by_a_string() -> None:
    """Anything that is not a string is a mistake of another kind."""
    with pytest.raises(TypeError, match="event must be an RTVIEvent or the name of one, not list"):
        event_from(["bot_ready"])  # type: ignore[arg-type]


def test_event_is_frozen_and_by_keyword() -> None:
    """An event has its facts, its time, and the message behind it, and cannot be changed."""
    message = RTVIMessage("bot-llm-text", {"text": "You"}, None)
    event = Event(type=RTVIEvent.BOT_LLM_TEXT, data="You", received_at=1.5, message=message)
    assert (event.type, event.data, event.received_at, event.message) == ("botLlmText", "You", 1.5, message)
    assert Event(type=RTVIEvent.CONNECTED, received_at=2.0).data is None
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        event.data = None  # type: ignore[assignment, misc]
    with pytest.raises(TypeError):
        Event(RTVIEvent.CONNECTED, received_at=2.0)  # type: ignore[call-arg]
