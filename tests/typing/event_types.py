# pyright: reportUnnecessaryTypeIgnoreComment=true
"""A user's program whose events have types. It is checked by mypy and pyright, and not executed.

Each of both has to find the mistakes: a comment that ignores no error is an error.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import assert_type

from rtvi_sync import (
    BotLLMTextData,
    BotReadyData,
    BotTTSTextData,
    CloseInfo,
    Event,
    EventStream,
    RTVIClient,
    RTVIEvent,
    TranscriptData,
)
from rtvi_sync.media import AudioLevel, MediaDeviceInfo


def show(*values: object) -> None:
    """Stand for a program's use of values."""


def waiting(client: RTVIClient) -> None:
    """Wait: the payload has the type of the event, by whatever name."""
    assert_type(client.wait_for("bot-ready").data, BotReadyData)
    assert_type(client.wait_for("botReady").data, BotReadyData)
    assert_type(client.wait_for("bot_ready").data, BotReadyData)
    assert_type(client.wait_for("BOT_READY").data, BotReadyData)
    assert_type(client.wait_for(RTVIEvent.BOT_READY, timeout=5), Event[BotReadyData])
    assert_type(client.wait_for("user-transcription").data, TranscriptData)
    assert_type(client.wait_for("bot_text").data, BotLLMTextData)
    assert_type(client.wait_for("disconnected").data, CloseInfo)
    assert_type(client.wait_for("local_audio_level").data, AudioLevel)
    assert_type(client.wait_for("available_mics_updated").data, list[MediaDeviceInfo])
    assert_type(client.wait_for("bot-stopped-speaking").data, None)
    assert_type(client.wait_for("server-message").data, Any)
    client.wait_for("user_transcript", where=lambda event: event.data.final)
    client.wait_for("user_transcript", where=lambda event: event.data.finished)  # type: ignore[type-var]
    client.wait_for("user_transcripts")  # type: ignore[type-var]
    client.wait_for("user_transcript", timout=5)  # type: ignore[type-var]
    client.wait_for()  # type: ignore[call-arg]


def iterating(client: RTVIClient) -> None:
    """Iterate: the payloads of a stream have their types, too; with several types it is any."""
    with client.events("bot-transcription", "bot-llm-text", timeout=10) as texts:
        assert_type(next(texts).data.text, str)
        for event in texts:
            show(event.data.text)
            show(event.data.txt)  # type: ignore[attr-defined]
    assert_type(client.events("bot-output", "bot-ready"), EventStream[Any])
    assert_type(client.events(), EventStream[Any])
    client.events("bot-output", "bot-redy")  # type: ignore[type-var]


def handling(client: RTVIClient) -> None:
    """Register handlers, which take the payload or nothing, and keep their types."""

    @client.on("bot-ready")
    def on_ready(data: BotReadyData) -> str | None:
        return data.version

    @client.on("bot_llm_text")
    @client.once(RTVIEvent.BOT_TTS_TEXT)
    def on_text(data: BotLLMTextData | BotTTSTextData) -> None:
        show(data.text)

    @client.on("bot-ready")  # type: ignore[type-var]
    def on_another(data: TranscriptData) -> None:
        show(data.text)

    show(on_ready(data=BotReadyData()), on_text(BotLLMTextData(text="a")))
    client.once("connected", lambda: show("connected"))
    client.on("bot_ready", show)
    client.on("bot_ready", on_ready)
    client.on("bot_ready", on_text)  # type: ignore[type-var]
    client.on("bot_redy", show)  # type: ignore[type-var]
    client.once("bot_redy", show)  # type: ignore[type-var]
    client.off("bot_redy", show)  # type: ignore[type-var]
    client.on("bot_ready", lambda bot: show(bot.version))
    client.on("bot_ready", lambda bot, prefix="at": show(prefix, bot))
    client.on("bot_ready", lambda prefix="at": show(prefix))
    client.on("bot_ready", lambda bot: show(bot.versoin))  # type: ignore[type-var]
    client.on("bot_ready", None)  # type: ignore[type-var]
    client.on("bot_ready", callback=show)  # type: ignore[type-var]
    client.on()  # type: ignore[call-arg]


def expecting(client: RTVIClient) -> None:
    """Name events elsewhere: a misspelt one is an error there, too."""
    with client.expect() as expect:
        show(expect.event("bot_ready"), expect.event(RTVIEvent.BOT_READY))
        expect.event("bot_redy")  # type: ignore[type-var]
        expect.absent("bot_redy", for_=1)  # type: ignore[type-var]
    client.barge_in("Stop!", after="bot_llm_started")
    client.barge_in("Stop!", after="bot_llm_start")  # type: ignore[arg-type]


def names_of_the_run(client: RTVIClient, name: str) -> None:
    """Make an event of a name that is not known before the program runs."""
    client.on(RTVIEvent(name), show)
    assert_type(client.wait_for(RTVIEvent(name)).data, Any)
    client.on(name, show)  # type: ignore[type-var]
    for event in RTVIEvent:
        client.on(event, show)
    found: Event = client.wait_for("bot_ready")
    show(found.type == "bot-ready")


def receiver(sender: RTVIClient, event: Event) -> None:
    """Receive an event without a type in brackets, which has any payload."""
    show(sender, event.data.anything)
