"""Options of a client: limits, spellings, callbacks."""

from __future__ import annotations

import logging
import sys
from datetime import timedelta
from types import ModuleType
from typing import Any

import httpx
import pytest

from rtvi_sync import (
    MemoryTransport,
    MissingExtraError,
    RTVIClient,
    RTVIClientOptions,
    RTVIEvent,
    RTVIEventCallbacks,
    StartBotError,
    WebSocketTransport,
)
from rtvi_sync.media import SilenceSource
from rtvi_sync.testing import EmbeddedBot
from tests.support.clients import memory_client, server_message, transport_of
from tests.support.httpx_twice import httpx2  # noqa: F401 - a fixture
from tests.support.probes import connect_limit, listeners
from tests.support.slowness import GUARD


class TestTimeout:
    @pytest.mark.parametrize(
        ("options", "seconds"),
        [
            ({}, None),
            ({"timeout": 10_000}, 10.0),
            ({"timeout": 100}, 0.1),
            ({"timeout": 2500.5}, 2.5005),
            ({"timeout": None}, None),
            ({"connect_timeout": 10}, 10.0),
            ({"connect_timeout": 0.5}, 0.5),
            ({"timeout": timedelta(seconds=3)}, 3.0),
            ({"connect_timeout": timedelta(minutes=1)}, 60.0),
        ],
    )
    def test_both_spellings(self, options: dict[str, Any], seconds: float | None) -> None:
        """`timeout` is in milliseconds, `connect_timeout` in seconds, and both take a timedelta."""
        assert connect_limit(RTVIClient(**options)) == seconds

    def test_both_given_is_a_type_error(self) -> None:
        """The limit has two spellings and may be given in one of them only."""
        with pytest.raises(TypeError, match="same limit"):
            RTVIClient(timeout=1000, connect_timeout=1)

    @pytest.mark.parametrize("wrong", ["10", True, [1]])
    def test_not_a_number_is_a_type_error(self, wrong: Any) -> None:
        """A limit that is no number is refused when the client is made."""
        with pytest.raises(TypeError, match="timeout must be a positive number of milliseconds or a timedelta"):
            RTVIClient(timeout=wrong)
        with pytest.raises(TypeError, match="connect_timeout must be a positive number of seconds or a timedelta"):
            RTVIClient(connect_timeout=wrong)

    @pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), timedelta(0)])
    def test_not_positive_is_a_value_error(self, wrong: Any) -> None:
        """A limit of nothing, less, or no end makes no sense."""
        with pytest.raises(ValueError, match="positive"):
            RTVIClient(connect_timeout=wrong)

    @pytest.mark.parametrize("timeout", [10, 99.9, 0.5])
    def test_seconds_given_as_milliseconds_are_hinted_at(
        self, timeout: float, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A `timeout` below 100 logs one warning that names `connect_timeout`."""
        RTVIClient(timeout=timeout)
        assert [r.levelno for r in caplog.records] == [logging.WARNING]
        assert "connect_timeout" in caplog.text

    def test_plausible_limits_are_not_hinted_at(self, caplog: pytest.LogCaptureFixture) -> None:
        """No warning for milliseconds, a timedelta, or seconds where seconds are meant."""
        RTVIClient(timeout=100)
        RTVIClient(timeout=timedelta(milliseconds=50))
        RTVIClient(connect_timeout=5)
        assert caplog.records == []


class TestOptions:
    def test_unknown_options_are_type_errors(self) -> None:
        """A misspelt option is named together with those that exist."""
        with pytest.raises(TypeError, match=r"no enable_mike.*enable_mic"):
            RTVIClient(enable_mike=True)  # type: ignore[call-overload]

    def test_enable_cam_and_enable_camera_are_one_option(self) -> None:
        """Either name may be used, but not both."""
        with pytest.raises(TypeError, match="same option"):
            RTVIClient(enable_cam=True, enable_camera=True)

    @pytest.mark.parametrize(
        "option", [{"mic": "1"}, {"mic": SilenceSource()}, {"speaker": print}, {"cam": "1"}, {"enable_cam": True}]
    )
    def test_text_only_has_no_devices(self, option: dict[str, Any]) -> None:
        """text_only excludes every option that asks for a device; the error names both."""
        (name,) = option
        with pytest.raises(TypeError, match=rf"text_only and {name} exclude each other"):
            RTVIClient(text_only=True, **option)
        RTVIClient({"textOnly": True, "mic": False, "speaker": False, "cam": False, "enable_cam": False})
        RTVIClient(text_only=False, **option)

    @pytest.mark.parametrize("name", ["enable_cam", "enable_camera", "enableCam", "enableCamera"])
    def test_a_camera_without_video_is_a_warning(self, name: str, caplog: pytest.LogCaptureFixture) -> None:
        """`enable_cam=True` on a transport without video logs a warning and leaves the camera off."""
        client = RTVIClient({name: True, "transport": MemoryTransport()})
        assert "no video" in caplog.text
        assert client.is_cam_enabled is False

    def test_camera_left_off_says_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        """The default makes no noise."""
        RTVIClient(transport=MemoryTransport(), enable_cam=False)
        RTVIClient(transport=MemoryTransport())
        assert caplog.records == []

    def test_an_options_object(self) -> None:
        """`RTVIClient(options)` has the same effect as the same keywords."""
        transport = MemoryTransport()
        client = RTVIClient(RTVIClientOptions(transport=transport, timeout=3000, enable_mic=False))
        assert transport_of(client) is transport
        assert connect_limit(client) == 3.0
        assert client.is_mic_enabled is False

    @pytest.mark.parametrize(
        "mapping",
        [
            {"enable_mic": False, "connect_timeout": 2, "params": {"base_url": "http://x", "request_data": {"a": 1}}},
            {"enableMic": False, "connectTimeout": 2, "params": {"baseUrl": "http://x", "requestData": {"a": 1}}},
        ],
        ids=["snake_case", "camelCase"],
    )
    def test_a_mapping(self, mapping: dict[str, Any]) -> None:
        """A mapping does too, with snake_case or camelCase keys at every level that is ours."""
        client = RTVIClient(mapping)
        assert client.is_mic_enabled is False
        assert connect_limit(client) == 2.0
        assert client.params.base_url == "http://x"
        assert client.params.request_data == {"a": 1}

    def test_keys_of_request_data_are_the_programs(self) -> None:
        """Keys of the data for the server are not renamed."""
        client = RTVIClient(params={"requestData": {"userId": 1, "user_name": 2}, "services": {"llmService": "x"}})
        assert client.params.request_data == {"userId": 1, "user_name": 2}
        assert client.params.services == {"llmService": "x"}

    def test_two_spellings_of_one_key(self) -> None:
        """camelCase and snake_case of the same key contradict each other."""
        with pytest.raises(TypeError, match="two spellings"):
            RTVIClient({"enableMic": True, "enable_mic": False})

    def test_an_object_and_keywords(self) -> None:
        """An options object and keywords exclude each other."""
        with pytest.raises(TypeError, match="either one options object or keyword"):
            RTVIClient({"enable_mic": True}, timeout=1000)  # type: ignore[call-overload]

    def test_events_is_one_of_two(self) -> None:
        """A wrong mode is refused."""
        with pytest.raises(ValueError, match="manual"):
            RTVIClient(events="later")  # type: ignore[call-overload]

    @pytest.mark.parametrize(
        ("wrong", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)]
    )
    def test_a_size_is_a_positive_integer(self, wrong: Any, error: type[Exception]) -> None:
        """A limit in bytes that limits nothing, or that is no integer, is refused by its name."""
        with pytest.raises(error, match="max_queued_audio_bytes"):
            RTVIClient(max_queued_audio_bytes=wrong)
        assert RTVIClientOptions().max_queued_audio_bytes == 16 * 1024 * 1024

    def test_echo_cancellation_needs_an_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The constructor says which, not the first device."""
        monkeypatch.setitem(sys.modules, "pywebrtc_audio", None)
        with pytest.raises(MissingExtraError, match=r"Echo cancellation .*install .*\[aec\]"):
            RTVIClient(echo_cancellation=True)

    def test_a_transport_is_an_object(self) -> None:
        """The class instead of an object is a mistake that is told at once."""
        with pytest.raises(TypeError, match=r"such as WebSocketTransport\(\)"):
            RTVIClient(transport=WebSocketTransport)  # type: ignore[call-overload]

    def test_not_a_mapping(self) -> None:
        """Something else than options is named."""
        with pytest.raises(TypeError, match="not str"):
            RTVIClient("http://x")  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="not str"):
            RTVIClient(params="http://x")  # type: ignore[call-overload]


class TestCallbacks:
    @pytest.mark.parametrize("name", ["on_server_message", "onServerMessage"])
    def test_a_mapping(self, name: str) -> None:
        """Callbacks are found under their name in either spelling."""
        heard: list[Any] = []
        with memory_client(callbacks={name: heard.append}) as client:
            transport_of(client).receive(server_message("x"))
        assert heard == ["x"]

    def test_an_object(self) -> None:
        """`RTVIEventCallbacks` takes them as keywords."""
        heard: list[Any] = []
        with memory_client(callbacks=RTVIEventCallbacks(on_server_message=heard.append)) as client:
            transport_of(client).receive(server_message("x"))
        assert heard == ["x"]

    def test_a_subclass(self) -> None:
        """Methods of a subclass named `on_...` are callbacks."""

        class Mine(RTVIEventCallbacks):
            def __init__(self) -> None:
                super().__init__()
                self.heard: list[Any] = []

            def on_server_message(self, data: Any) -> None:
                self.heard.append(data)

        mine = Mine()
        with memory_client(callbacks=mine) as client:
            transport_of(client).receive(server_message("x"))
        assert mine.heard == ["x"]

    @pytest.mark.parametrize(
        ("name", "event"),
        [
            ("on_config_update", RTVIEvent.CONFIG_UPDATED),
            ("on_message_error", RTVIEvent.MESSAGE_ERROR),
            ("on_bot_text", RTVIEvent.BOT_LLM_TEXT),
            ("on_generic_message", RTVIEvent.UNKNOWN_MESSAGE),
            ("on_bot_connected", RTVIEvent.BOT_CONNECTED),
        ],
    )
    def test_names_of_the_javascript_client(self, name: str, event: RTVIEvent) -> None:
        """Callbacks whose name differs from their event's are known too."""

        def ours() -> None: ...

        client = RTVIClient(callbacks={name: ours})
        _, handlers, _ = listeners(client)
        client.off(event, ours)
        assert listeners(client)[1] == handlers - 1

    @pytest.mark.parametrize("name", ["on_bot_redy", "bot_ready", "", "on_"])
    def test_a_misspelt_callback(self, name: str) -> None:
        """A misspelt callback would never be called, so it is refused."""
        with pytest.raises(TypeError, match="no callback"):
            RTVIClient(callbacks={name: lambda: None})

    def test_not_a_function(self) -> None:
        """A callback that cannot be called is refused when the client is made."""
        with pytest.raises(TypeError, match=r"callbacks\['on_bot_ready'\] must be a function, not None"):
            RTVIClient(callbacks={"on_bot_ready": None})  # type: ignore[dict-item]


def test_the_client_of_either_library_is_taken(httpx2: ModuleType) -> None:  # noqa: F811 - the fixture
    """httpx2 has the interface of httpx; a client for asyncio has another one."""
    with EmbeddedBot() as bot, httpx2.Client(trust_env=False) as own:
        with RTVIClient.for_url(bot.base_url, http_client=own, text_only=True, connect_timeout=GUARD) as client:
            assert client.connected
        with pytest.raises(StartBotError, match="answered 404"):
            RTVIClient(http_client=own).start_bot(f"{bot.base_url}/nowhere")
    for library in (httpx, httpx2):
        with pytest.raises(TypeError, match=r"an httpx\.Client or httpx2\.Client or None, not AsyncClient"):
            RTVIClient(http_client=library.AsyncClient())
