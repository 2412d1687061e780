"""The names that users import."""

from __future__ import annotations

import importlib
import inspect
import types
from typing import Any

import pytest

import rtvi_sync
import rtvi_sync.media
import rtvi_sync.testing

INTERFACE = """
    RTVIClient RTVIClientOptions RTVIClientParams RTVIEventCallbacks RTVIEvent RTVIMessage Event Transport
    TransportState WebSocketTransport APIRequest signals RTVIError ConnectionTimeoutError StartBotError
    TransportStartError DisconnectedError BotError BotNotReadyError BotAlreadyStartedError RequestTimeoutError
    RequestRejectedError ConfigUpdateError MessageTooLargeError ActionEndpointNotSetError UnsupportedFeatureError
    InvalidTransportParamsError DeviceError ProtocolError WouldDeadlockError ForkedProcessError MissingExtraError
    BotReadyData BotLLMTextData RTVIClientConfigOption ConfigOption RTVIActionRequestData RTVIActionResponse
    RTVIClientHelper LLMHelper FunctionCall Turn TurnAudio TurnTimings TimelineEntry ReportedFunctionCall PendingTurn
    Expect ExpectationError
"""
MEDIA = """
    AudioSource AudioSink VideoSource WavSource BytesSource SilenceSource ToneSource CallbackSource PushSource WavSink
    BytesSink NullSink CallbackSink FileVideoSource MediaDeviceInfo MediaState DeviceStatus AudioLevel AudioDroppedData
    TrackData Participant Tracks ParticipantTracks
"""
METHODS = """
    connect disconnect close start_bot start_bot_and_connect disconnect_bot state connected version params
    transport_expiry construct_url send_message send_client_message send_client_request send_text on once off events
    wait_for process_events init_devices get_all_mics get_all_cams get_all_speakers selected_mic selected_cam
    selected_speaker update_mic update_cam update_speaker enable_mic enable_cam enable_screen_share is_mic_enabled
    is_cam_enabled is_sharing_screen media_state tracks config get_bot_config get_config
    update_config describe_config get_service_options_from_config get_service_option_value_from_config
    set_service_option_in_config set_config_options describe_actions action action_stream register_helper get_helper
    unregister_helper send_file append_to_context send_dtmf send_ui_event send_ui_snapshot cancel_ui_job_group
    ask listen barge_in expect turns
    register_function_call_handler unregister_function_call_handler unregister_all_function_call_handlers
"""

PUBLIC = [rtvi_sync, rtvi_sync.media, rtvi_sync.testing]


@pytest.mark.parametrize("module", PUBLIC, ids=lambda m: m.__name__)
def test_all_is_what_is_visible(module: types.ModuleType) -> None:
    """`__all__` names everything that is visible and no submodule, private name or name twice."""
    assert len(module.__all__) == len(set(module.__all__))
    visible = {
        name
        for name, value in ((name, getattr(module, name)) for name in dir(module))
        if not name.startswith("_") and (not isinstance(value, types.ModuleType) or name in module.__all__)
    }
    assert visible | {"__version__"} == set(module.__all__) | {"__version__"}
    for name in module.__all__:
        assert hasattr(module, name)


def test_star_import() -> None:
    """`from rtvi_sync import *` gives exactly that."""
    scope: dict[str, Any] = {}
    exec("from rtvi_sync import *", scope)
    assert set(rtvi_sync.__all__) <= set(scope)


def test_every_name_of_the_interface() -> None:
    """The names that the interface promises for this version are there."""
    assert set(INTERFACE.split()) <= set(rtvi_sync.__all__)
    assert set(MEDIA.split()) <= set(rtvi_sync.media.__all__)
    assert set(METHODS.split()) <= set(dir(rtvi_sync.RTVIClient))


def public_things() -> list[tuple[str, Any]]:
    """Return each public name with its object, and the public methods and properties of the classes."""
    found: list[tuple[str, Any]] = []
    for module in PUBLIC:
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) or inspect.isfunction(thing) or isinstance(thing, types.ModuleType):
                found.append((f"{module.__name__}.{name}", thing))
            if inspect.isclass(thing):
                found += [
                    (f"{module.__name__}.{name}.{attribute}", value)
                    for attribute, value in vars(thing).items()
                    if not attribute.startswith("_")
                    and (inspect.isfunction(value) or isinstance(value, property))
                    and not _inherits_its_docstring(thing, attribute)
                ]
    return found


def _inherits_its_docstring(cls: type, attribute: str) -> bool:
    """Return whether a method says no more than the one it overrides, or a protocol describes its interface."""
    return attribute == "after_fork_in_child" or any(attribute in vars(base) for base in cls.__mro__[1:])


def test_everything_public_has_a_docstring() -> None:
    """Every public class, function, method and property has a description."""
    silent = []
    for name, thing in public_things():
        if isinstance(thing, property):
            doc = thing.fget.__doc__
        else:
            doc = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
        if not (doc or "").strip() or (inspect.isclass(thing) and str(doc).startswith("Method generated by attrs")):
            silent.append(name)
    assert silent == []


def test_every_error_is_an_rtvi_error() -> None:
    """Every error has the base class `RTVIError`, and the HTTP status if there was one."""
    errors = importlib.import_module("rtvi_sync.errors")
    for name, cls in vars(errors).items():
        if inspect.isclass(cls) and cls.__module__ == errors.__name__:
            assert issubclass(cls, rtvi_sync.RTVIError)
            assert name in rtvi_sync.__all__
    assert issubclass(rtvi_sync.ConnectionTimeoutError, TimeoutError)
    assert issubclass(rtvi_sync.RequestTimeoutError, TimeoutError)
    assert issubclass(rtvi_sync.DisconnectedError, ConnectionError)
    assert rtvi_sync.StartBotError("x", status=500).status == 500
    assert rtvi_sync.RTVIError("x").status is None


def test_the_version() -> None:
    """The version is a string, and the same everywhere."""
    assert rtvi_sync.__version__.replace(".", "").isdecimal()
    assert rtvi_sync.RTVIClient().version == rtvi_sync.__version__
