"""The error of an abandoned attempt in the tests of this folder."""

from __future__ import annotations


class AbandonedError(Exception):
    """The attempt of a test was abandoned."""
