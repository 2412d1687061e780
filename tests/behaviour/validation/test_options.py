"""Every option of every public constructor, function and method is validated where it is given."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from rtvi_sync import (
    APIRequest,
    EvalTransport,
    ReconnectPolicy,
    RTVIClient,
    RTVIClientOptions,
    RTVIClientParams,
    RTVIError,
    SmallWebRTCTransport,
    TelephonyTransport,
    WebSocketTransport,
    connect,
)
from rtvi_sync.testing import EmbeddedBot, MeasuredClient
from tests.behaviour.validation import client_table, tools_table
from tests.behaviour.validation.calls import Call
from tests.behaviour.validation.reasons import CONSTRUCTORS, METHODS
from tests.behaviour.validation.surface import parameters
from tests.support.targets import Targets
from tests.support.threads import open_descriptors


def _as_measured(name: str, row: Call) -> Call:
    """Have `MeasuredClient` refuse the values that a method of the client must refuse."""

    def function(targets: Targets) -> Callable[..., object]:
        method: Callable[..., object] = getattr(targets.measured(), name)
        return method

    return Call(function, row.valid, row.wrong)


def _rows() -> dict[str, Call]:
    rows = {**client_table.TABLE, **tools_table.TABLE}
    for name, row in client_table.TABLE.items():
        owner, _, method = name.partition(".")
        if owner == "RTVIClient" and method in vars(MeasuredClient):
            rows.setdefault(f"MeasuredClient.{method}", _as_measured(method, row))
    return rows


ROWS = _rows()


def _names(rows: dict[str, Call]) -> list[str]:
    return [
        f"{name}.{parameter}"
        for name, row in rows.items()
        for parameter, wrong in row.wrong.items()
        if not isinstance(wrong, str)
    ]


@pytest.fixture
def targets() -> Iterator[Targets]:
    with Targets() as made:
        yield made


def _call(function: Callable[..., object], arguments: dict[str, Any]) -> object:
    bound = inspect.signature(function).bind_partial()
    bound.arguments.update(arguments)
    return function(*bound.args, **bound.kwargs)


def _is_named(name: str, text: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}\b", text) is not None


def _refused(function: Callable[[], object], name: str) -> str:
    """Call a function that must refuse an option, check that it has done nothing else, and return the error's text."""
    threads, descriptors = set(threading.enumerate()), open_descriptors()
    with pytest.raises((TypeError, ValueError)) as caught:
        function()
    assert not isinstance(caught.value, RTVIError)
    assert _is_named(name, str(caught.value)), str(caught.value)
    assert set(threading.enumerate()) <= threads
    assert open_descriptors().items() <= descriptors.items()
    return str(caught.value)


def test_every_parameter_has_a_row_or_a_reason() -> None:
    """A new public parameter is added to the tables, and one that is gone leaves them."""
    listed = {f"{name}.{parameter}" for name, row in ROWS.items() for parameter in row.wrong}
    found, reasons_used = set(), set()
    for parameter in parameters():
        owner = parameter.rpartition(".")[0]
        if owner in (CONSTRUCTORS if "." not in owner else METHODS):
            reasons_used.add(owner)
        else:
            found.add(parameter)
    assert found - listed == set(), "public parameters without a row"
    assert listed - found == set(), "rows without a parameter"
    assert reasons_used | {name for name in METHODS if "Transport." in name} == {*CONSTRUCTORS, *METHODS}


@pytest.mark.parametrize("name", _names(ROWS))
def test_wrong_values_are_refused_where_they_are_given(name: str, targets: Targets) -> None:
    """Each wrong value is a TypeError or ValueError that names the option, at once; the call does nothing else."""
    owner, _, parameter = name.rpartition(".")
    row = ROWS[owner]
    function = row.function(targets)
    for wrong in row.wrong[parameter]:
        named = parameter
        if inspect.signature(function).parameters[parameter].kind is inspect.Parameter.VAR_KEYWORD:
            named = next(iter(wrong))
        _refused(functools.partial(_call, function, {**row.valid, parameter: wrong}), named)


@pytest.mark.parametrize("name", ROWS)
def test_valid_values_are_accepted(name: str, targets: Targets) -> None:
    """The valid values of the tables are accepted, so a refusal is due to the wrong value and nothing else."""
    row = ROWS[name]
    required = {
        parameter.name
        for parameter in inspect.signature(row.function(targets)).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL
        if parameter.kind is not parameter.VAR_KEYWORD
    }
    if required <= {*row.valid}:
        with contextlib.suppress(RTVIError, OSError):  # there is no session, no file, no device
            _call(row.function(targets), dict(row.valid))


@pytest.mark.parametrize("name", _names(client_table.FIELDS) + _names({"EmbeddedBot": tools_table.BOT}))
def test_assignments_are_validated(name: str) -> None:
    """Mutable objects refuse an assignment as their constructor does, and keep their value."""
    owner, _, option = name.rpartition(".")
    row = ROWS[owner]
    made = row.function(Targets())()
    before = getattr(made, option)
    for wrong in row.wrong[option]:
        _refused(functools.partial(setattr, made, option, wrong), option)
        assert getattr(made, option) is before


@pytest.mark.parametrize("option", [name.rpartition(".")[2] for name in _names({"_": ROWS["RTVIClientOptions"]})])
@pytest.mark.parametrize("client", [RTVIClient, MeasuredClient])
def test_an_option_is_named_as_it_was_given(client: type[RTVIClient], option: str) -> None:
    """The client takes its options as keywords or in a mapping, in two spellings; an error has the one in use."""
    camel = re.sub(r"_(\w)", lambda match: match[1].upper(), option)
    for wrong in ROWS["RTVIClientOptions"].wrong[option]:
        _refused(functools.partial(client, **{option: wrong}), option)
        _refused(functools.partial(client, {option: wrong}), option)
        _refused(functools.partial(client, {camel: wrong}), camel)


BOT_URL = "ws://bot.example"
#: Functions that pass options on: a factory of each, and the row of the options.
PASSED_ON: dict[str, tuple[Callable[..., object], str]] = {
    "for_url": (functools.partial(RTVIClient.for_url, BOT_URL), "RTVIClientOptions"),
    "MeasuredClient.for_url": (functools.partial(MeasuredClient.for_url, BOT_URL), "RTVIClientOptions"),
    "connect": (functools.partial(connect, BOT_URL), "RTVIClientOptions"),
    "ReconnectPolicy.forever": (ReconnectPolicy.forever, "ReconnectPolicy"),
    "EvalTransport": (EvalTransport, "WebSocketTransport"),
    "TelephonyTransport": (TelephonyTransport, "WebSocketTransport"),
}


@pytest.mark.parametrize("name", PASSED_ON)
def test_options_that_are_passed_on(name: str) -> None:
    """A function that takes the options of another one refuses the same values, and starts nothing."""
    function, row = PASSED_ON[name]
    for option, values in ROWS[row].wrong.items():
        for wrong in () if option == "transport" else values:  # has its own row
            _refused(functools.partial(function, **{option: wrong}), option)


def test_options_in_nested_mappings() -> None:
    """Parameters, endpoints, requests and callbacks given as mappings are named by their keys."""
    assert "baseUrl must be" in _refused(lambda: RTVIClient(params={"baseUrl": 5}), "baseUrl")
    assert "connect must be" in _refused(lambda: RTVIClient(params={"endpoints": {"connect": 5}}), "connect")
    greet: Any = "greet"
    _refused(lambda: RTVIClient(callbacks={"onBotReady": greet}), "callbacks")
    _refused(lambda: RTVIClient(callbacks={"on_bot_ready": lambda one, two: None}), "on_bot_ready")
    client = RTVIClient()
    _refused(lambda: client.start_bot({"endpoint": "http://bot.example", "requestData": 5}), "requestData")
    _refused(lambda: client.action({"service": "llm", "action": "run", "arguments": [5]}), "arguments")
    _refused(lambda: client.action({"service": 5, "action": "run"}), "service")
    _refused(lambda: client.action({"service": "llm"}), "action")


def test_a_time_limit_in_the_place_of_a_condition() -> None:
    """`wait_for("event", 5)` does not wait: the error shows how to pass a limit."""
    with pytest.raises(TypeError, match=r"where must be a function or None, not int; pass a time limit as timeout="):
        RTVIClient().wait_for("bot_ready", cast("Any", 5))


def wrong(value: object) -> Any:
    """Return a value for an option of another type."""
    return value


@pytest.mark.parametrize(
    "give",
    [
        lambda secret: WebSocketTransport(token=wrong([secret])),
        lambda secret: WebSocketTransport(headers={"Authorization": wrong([secret])}),
        lambda secret: WebSocketTransport(headers=wrong([secret])),
        lambda secret: RTVIClient(proxy=wrong([f"http://user:{secret}@proxy.example"])),
        lambda secret: RTVIClientParams(headers={"Authorization": secret.encode()}),
        lambda secret: RTVIClientParams(request_data=wrong([secret])),
        lambda secret: RTVIClientParams(base_url=wrong([f"http://user:{secret}@bot.example"])),
        lambda secret: RTVIClientParams(services={"llm": [secret]}),
        lambda secret: RTVIClientOptions(params=wrong([secret])),
        lambda secret: APIRequest(endpoint=wrong(f"http://{secret}".encode())),
        lambda secret: RTVIClient().start_bot("http://bot.example", headers={"X-Key": wrong([secret])}),
        lambda secret: RTVIClient().start_bot("http://bot.example", request_data=secret),
        lambda secret: EmbeddedBot(headers={"Authorization": wrong([secret])}),
    ],
)
def test_no_secret_is_shown(give: Callable[[str], object]) -> None:
    """Errors about options that hold credentials name their type, and no value."""
    with pytest.raises(TypeError) as caught:
        give("s3cret")
    assert "s3cret" not in str(caught.value)


HEADER_TAKERS: dict[str, Callable[[Any], object]] = {
    "RTVIClientParams": lambda headers: RTVIClientParams(headers=headers),
    "a mapping of params": lambda headers: RTVIClient(params={"headers": headers}),
    "an assignment": lambda headers: setattr(RTVIClient().params, "headers", headers),
    "APIRequest": lambda headers: APIRequest(endpoint="http://bot.example/start", headers=headers),
    "start_bot": lambda headers: RTVIClient().start_bot("http://bot.example/start", headers=headers),
    "for_url of a server": lambda headers: RTVIClient.for_url("http://bot.example", headers=headers),
    "for_url of a WebSocket": lambda headers: RTVIClient.for_url("ws://bot.example/ws", headers=headers),
    "for_url of an offer": lambda headers: RTVIClient.for_url("http://bot.example/api/offer", headers=headers),
    "WebSocketTransport": lambda headers: WebSocketTransport(headers=headers),
    "EvalTransport": lambda headers: EvalTransport(headers=headers),
    "SmallWebRTCTransport": lambda headers: SmallWebRTCTransport(headers=headers),
    "TelephonyTransport": lambda headers: TelephonyTransport(headers=headers),
}


@pytest.mark.parametrize("taker", HEADER_TAKERS)
@pytest.mark.parametrize(
    "headers",
    [
        {"X Key": "s3cret"},
        {"": "s3cret"},
        {"X\r\nEvil": "s3cret"},
        {"X-Key": "s3cret\n"},
        {"X-Key": " s3cret"},
        {"X-Key": "s3crét s3cret"},
        {"Content-Length": "5"},
        {f"X-{i}": "s3cret" for i in range(101)},
    ],
)
def test_headers_are_refused_where_they_are_given(taker: str, headers: dict[str, str]) -> None:
    """A header that no request can have is an error of the call that gives it, and its value is not shown."""
    with pytest.raises(ValueError, match="headers cannot be sent: ") as caught:
        HEADER_TAKERS[taker](headers)
    assert "s3cret" not in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["Upgrade", "Sec-WebSocket-Key"])
def test_headers_of_the_handshake_are_refused_where_they_are_given(name: str) -> None:
    """A header that the handshake of a WebSocket sets itself is refused by the transport's constructor."""
    with pytest.raises(ValueError, match=f"the header '{name}' is set by the request; leave it out"):
        WebSocketTransport(headers={name: "x"})


@pytest.mark.parametrize("token", ["s3cret\n", "s3cret\r\nEvil: 1"])
def test_a_token_for_a_header_is_refused_where_it_is_given(token: str) -> None:
    """A token that was read with its line break is named by the constructor, and is not shown."""
    with pytest.raises(ValueError, match="token cannot be sent") as caught:
        WebSocketTransport(token=token, token_in="header")
    assert "s3cret" not in str(caught.value)


def test_no_limit() -> None:
    """Where an option may have no limit, None says so."""
    RTVIClient(timeout=None, connect_timeout=None, request_timeout=None)
    WebSocketTransport(stall_timeout=None, ping_interval=None, ping_timeout=None)
    with pytest.raises(ValueError, match="or None"):
        RTVIClient(request_timeout=math.inf)


def test_functions_that_are_accepted() -> None:
    """Functions, methods, partial functions, classes and objects that can be called."""

    class Handler:
        def __call__(self, payload: object) -> None: ...

        def method(self, payload: object) -> None: ...

    client = RTVIClient()
    for function in (print, len, Handler(), Handler().method, functools.partial(Handler().method), lambda: None, list):
        client.on("bot_ready", cast("Any", function))
