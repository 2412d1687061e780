"""The errors: their drawing, and as objects that are pickled and copied."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from rtvi_sync import errors
from rtvi_sync.errors import RTVIError

EXAMPLES = [
    RTVIError("m", status=500),
    errors.ConnectError("m"),
    errors.SessionError("m"),
    errors.UsageError("m"),
    errors.ConnectionTimeoutError("m", phase="http", elapsed=1.5),
    errors.StartBotError("m", status=404),
    errors.TransportStartError("m"),
    errors.DisconnectedError("m", code=1011, reason="r", initiator="server"),
    errors.BotError("m", fatal=True),
    errors.BotNotReadyError("m"),
    errors.BotAlreadyStartedError("m"),
    errors.RequestTimeoutError("m"),
    errors.RequestRejectedError("m", status=403, response={"a": 1}),
    errors.ConfigUpdateError("m", response=None),
    errors.MessageTooLargeError("m"),
    errors.ActionEndpointNotSetError("m"),
    errors.UnsupportedFeatureError("m", feature="cam"),
    errors.InvalidTransportParamsError("m"),
    errors.DeviceError("m", devices=["mic"], type="in-use", details="d"),
    errors.ExpectationError("rain", "snow", "text_mismatch", others=[("a", "b", "latency")], timeline="0.0 bot"),
    errors.ProtocolError("m"),
    errors.WouldDeadlockError("m"),
    errors.ForkedProcessError("m"),
    errors.MissingExtraError("Flask", "flask"),
    errors.ScenarioFileError(Path("a.yaml"), 3, 5, "m", others=[(Path("b.yaml"), 0, 0, "n")]),
]


def facts(error: RTVIError) -> tuple[object, ...]:
    """Return all that an error says."""
    return type(error), str(error), error.args, vars(error)


def test_every_error_is_here() -> None:
    """The examples of this file are complete."""
    classes = {error for error in vars(errors).values() if isinstance(error, type) and issubclass(error, RTVIError)}
    assert {type(error) for error in EXAMPLES} == classes


def test_the_drawing_shows_the_classes() -> None:
    """The docstring of `rtvi_sync.errors` draws every class under its bases."""
    drawn: list[tuple[int, str]] = []
    for indent, name, builtin in re.findall(r"^( *)(\w+Error)\b(?: +\(also (\w+)\))?", errors.__doc__ or "", re.M):
        base = next((above for depth, above in reversed(drawn) if depth < len(indent)), "Exception")
        bases = tuple(each.__name__ for each in getattr(errors, name).__bases__)
        assert bases == ((base, builtin) if builtin else (base,)), name
        drawn.append((len(indent), name))
    assert sorted(name for _, name in drawn) == sorted(type(error).__name__ for error in EXAMPLES)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_can_be_pickled(error: RTVIError) -> None:
    """A worker process can raise it in its parent: nothing of it is lost."""
    assert facts(pickle.loads(pickle.dumps(error))) == facts(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_a_fresh_copy_of_an_error(error: RTVIError) -> None:
    """fresh_copy() returns another error that says the same, with a copy of the cause, and without tracebacks."""
    try:
        try:
            raise OSError("why")
        except OSError as cause:
            raise error from cause
    except RTVIError as raised:
        twin = errors.fresh_copy(raised)
    assert twin is not error
    assert facts(twin) == facts(error)
    assert repr(twin.__cause__) == repr(OSError("why"))
    assert twin.__cause__ is not None
    assert (twin.__traceback__, twin.__cause__.__traceback__) == (None, None)


def test_an_error_that_cannot_be_copied() -> None:
    """An error of the application's own that cannot be copied is kept as it is."""

    class StubbornError(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(one)

    error = StubbornError(1, 2)
    assert errors.fresh_copy(error) is error
