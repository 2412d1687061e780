"""Parsers of command-line arguments."""

from __future__ import annotations

import argparse

import pytest

from rtvi_sync.cli import arguments

pytestmark = pytest.mark.inside


def test_a_header_is_a_name_and_a_value() -> None:
    """Any other text is refused, and not repeated: it may hold a key."""
    assert arguments.header("Authorization:  Bearer a:b ") == ("Authorization", "Bearer a:b")
    for wrong in ("secret", ":secret", "secret:", "a: b\nsecret: c", "a b: secret", "a: sécret secret"):
        with pytest.raises(argparse.ArgumentTypeError) as caught:
            arguments.header(wrong)
        assert "secret" not in str(caught.value)
