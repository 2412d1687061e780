"""The levels at which audio counts as speech."""

from __future__ import annotations

import pytest

from rtvi_sync.media.loudness import FLOOR, audible

pytestmark = pytest.mark.inside


def test_noise_is_not_audible() -> None:
    """What is below the noise of a converter is silence, even if nothing else is louder."""
    assert audible([0.0, FLOOR - 1, FLOOR]) == [False, False, True]


def test_breath_beside_speech_is_not_audible() -> None:
    """The limit rises with the loudest frame: 28 dB below it is no speech."""
    assert audible([10_000.0, 500.0, 390.0]) == [True, True, False]


def test_no_frames() -> None:
    """Nothing is audible in nothing."""
    assert audible([]) == []
