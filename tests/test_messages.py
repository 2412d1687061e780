"""The message object and the classes of its data."""

from __future__ import annotations

import attrs
import pytest

from rtvi_sync import messages
from rtvi_sync.messages import (
    BotLLMTextData,
    BotReadyData,
    ConfigOption,
    Payload,
    RTVIClientConfigOption,
    TranscriptData,
    UserTranscriptionData,
)

PAYLOADS = [
    value
    for name in messages.__all__
    if isinstance(value := getattr(messages, name), type) and issubclass(value, Payload)
]


@pytest.mark.parametrize("cls", PAYLOADS, ids=lambda cls: cls.__name__)
def test_payload_classes_are_frozen_slotted_and_documented(cls: type[Payload]) -> None:
    """Each public payload class is immutable, has `.extra`, and has a docstring."""
    payload = cls(**{field.name: field.name for field in attrs.fields(cls) if field.default is attrs.NOTHING})
    assert payload.extra == {}
    assert cls.__doc__
    assert not hasattr(payload, "__dict__")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        payload.extra = {}  # type: ignore[misc]


def all_subclasses(cls: type) -> set[type]:
    """Return the classes below a class."""
    return set(cls.__subclasses__()).union(*map(all_subclasses, cls.__subclasses__()))


def test_every_payload_class_of_the_protocol_is_public() -> None:
    """All classes that the decoder can return can be imported from `rtvi_sync.messages`."""
    defined = {Payload, *all_subclasses(Payload)}
    assert {cls for cls in defined if cls.__module__.startswith("rtvi_sync.")} == set(PAYLOADS)


def test_payloads_take_keywords_only() -> None:
    """The order of a payload's fields is not part of the interface."""
    with pytest.raises(TypeError):
        BotLLMTextData("You")  # type: ignore[call-arg, arg-type]


def test_config_entries_can_be_written_by_position() -> None:
    """An application writes a config as service, list of options; the entry keeps a tuple."""
    entry = RTVIClientConfigOption("llm", options=[ConfigOption("model", "large")])
    assert entry.options == (ConfigOption(name="model", value="large"),)
    assert entry == RTVIClientConfigOption(service="llm", options=(ConfigOption("model", "large"),))


def test_payloads_of_plain_values_are_hashable_and_compare_by_value() -> None:
    """Equal payloads are one key; `.extra` counts for equality."""
    text = BotLLMTextData(text="You")
    assert {text: 1}[BotLLMTextData(text="You")] == 1
    assert text != BotLLMTextData(text="You", extra={"new": 1})


def test_defaults_of_bot_ready() -> None:
    """A bot that tells nothing about itself leaves everything unknown, and nothing to trip over."""
    ready = BotReadyData()
    assert (ready.version, ready.about.library, ready.capabilities.audio_in, ready.config) == ("", None, None, None)


def test_the_wire_name_of_a_transcript_is_the_same_class() -> None:
    """`UserTranscriptionData` is another name of client-js's `TranscriptData`."""
    assert UserTranscriptionData is TranscriptData
