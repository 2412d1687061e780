"""Options of the embedded bot that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync.testing import EmbeddedBot


@pytest.mark.parametrize("name", ["add", "math:", ":add", "", ("math",), ("", "add")])
def test_an_action_without_a_service_is_refused_at_once(name: Any) -> None:
    """No client could call an action without a service."""
    with pytest.raises(ValueError, match=r"key of actions must be 'service:action' or"):
        EmbeddedBot(actions={name: max})


def test_an_action_that_is_no_function_is_refused_at_once() -> None:
    """A value in the place of a function is an error: `on_request` takes values, `actions` does not."""
    with pytest.raises(TypeError, match=r"actions\['math:add'\] must be a function, not int"):
        EmbeddedBot(actions={"math:add": 3})  # type: ignore[dict-item]
