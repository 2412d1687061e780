"""The options of a session, which every transport receives."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator

import attrs
import pytest

from rtvi_sync import WebSocketTransport
from rtvi_sync.media import MediaPort
from rtvi_sync.media import port as port_module
from rtvi_sync.transports import base
from rtvi_sync.transports.base import TransportOptions
from rtvi_sync.transports.websocket_base import WebSocketOptions

pytestmark = pytest.mark.inside


def _classes(hint: object) -> Iterator[type]:
    """Return the classes that an annotation is made of."""
    for part in (hint, *typing.get_args(hint)):
        if part is not hint:
            for each in part if isinstance(part, list) else [part]:
                yield from _classes(each)
        elif inspect.isclass(part):
            yield part


def test_options_of_eval_are_those_of_websocket_transport() -> None:
    """The options that type checkers know of `EvalTransport` have the names and types of `WebSocketTransport`."""
    options = {name: reference.__forward_arg__ for name, reference in WebSocketOptions.__annotations__.items()}
    parameters = inspect.signature(WebSocketTransport).parameters.values()
    assert options == {each.name: each.annotation for each in parameters if each.kind is each.KEYWORD_ONLY}


def test_no_class_of_the_threads_is_public() -> None:
    """No public option, and no parameter of the media port, has a class of `rtvi_sync.concurrency`."""
    options = typing.get_type_hints(TransportOptions, vars(base))
    hints = [options[field.name] for field in attrs.fields(TransportOptions) if not field.name.startswith("_")]
    for name, method in inspect.getmembers(MediaPort, inspect.isfunction):
        if not name.startswith("_"):
            hints += typing.get_type_hints(method, vars(port_module)).values()
    modules = {each.__module__ for hint in hints for each in _classes(hint)}
    assert "rtvi_sync.media.port" in modules
    assert not [module for module in modules if module.startswith("rtvi_sync.concurrency")]
