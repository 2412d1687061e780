"""What type checkers know of the options of a client."""

from __future__ import annotations

import attrs
import pytest

from rtvi_sync import RTVIClientOptions
from rtvi_sync.client.options import ConstructorOptions, KeywordOptions

pytestmark = pytest.mark.inside


def test_keywords_are_the_options() -> None:
    """Type checkers know the names and types of the options, for the constructor and for `for_url()`."""
    keywords = {name: reference.__forward_arg__ for name, reference in ConstructorOptions.__annotations__.items()}
    assert keywords == {field.name: field.type for field in attrs.fields(RTVIClientOptions)}
    assert keywords.keys() - KeywordOptions.__annotations__ == {"transport", "custom_connect_handler"}
