"""The search for a value that JSON cannot express: place and type are named, the value is not."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from rtvi_sync.protocol.json_faults import find_fault

pytestmark = pytest.mark.inside


def encode(value: Any) -> None:
    """Encode as the envelope does: no NaN, and text that UTF-8 can express."""
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def fault(value: Any) -> Exception | None:
    """Search in a value that the error calls `data`."""
    return find_fault({"data": value}, encode)


def circle() -> list[Any]:
    """Make a list that contains itself."""
    found: list[Any] = []
    found.append({"again": found})
    return found


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (object(), TypeError, r"^data is an object, which JSON does not have\. Pass "),
        ({"user": [1, {"when": b"secret"}]}, TypeError, r"^data\['user'\]\[1\]\['when'\] is a bytes"),
        ({"user": {(1, 2): 3}}, TypeError, r"^data\['user'\] has a key that is a tuple"),
        ([1.0, float("nan")], ValueError, r"^data\[1\] is nan, a number that JSON does not have"),
        (["\ud800"], ValueError, r"^data\[0\] has half a character"),
        (circle(), ValueError, r"^data\[0\]\['again'\] refers back to data, "),
    ],
)
def test_the_place_is_named(value: Any, error: type[Exception], text: str) -> None:
    """The path leads to the value as Python would write it."""
    found = fault(value)
    assert type(found) is error
    assert re.search(text, str(found))
    assert "secret" not in str(found)


def test_what_json_has_is_no_fault() -> None:
    """fault() returns None for data without a fault, however they are nested."""
    assert fault({"a": [1, 2.5, None, True, {"b": "c"}], "d": ()}) is None


def test_a_shared_value_is_no_circle() -> None:
    """A list that data contain in two places is written twice."""
    shared = [1]
    assert fault([shared, shared]) is None


def test_too_many_levels() -> None:
    """Data that is nested too deeply is called that; a long path is shortened."""
    deep: Any = 1
    for _ in range(1500):
        deep = [deep]
    text = str(fault(deep))
    assert "is nested too deeply for JSON" in text
    assert "[...]" in text
    assert len(text) < 200


def test_a_long_key_is_cut() -> None:
    """Keys may be long, or have line breaks, and stand in the error in one short line."""
    text = str(fault({"k" * 1000 + "\n": {"a\nb": object()}}))
    assert "\n" not in text
    assert len(text) < 250
