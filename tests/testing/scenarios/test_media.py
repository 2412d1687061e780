"""Recordings and images that cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rtvi_sync.testing.scenarios import Scenario, ScenarioFileError
from rtvi_sync.testing.scenarios.media import check_media
from tests.support.wavs import silence, write_wav

pytestmark = pytest.mark.inside

TEXT = """
name: a
user: {modality: audio}
turns:
  - {user: one, audio: one.wav}
  - {user: two, audio: two.wav, image: cat.jpg}
  - {user: three, audio: one.wav}
"""


def test_all_is_there(load: Callable[..., Sequence[Scenario]], tmp_path: Path) -> None:
    """Recordings of up to 10 minutes, and images, can be used."""
    write_wav(tmp_path / "one.wav", [silence(1)])
    write_wav(tmp_path / "two.wav", [silence(600, 8000)], rate=8000)
    (tmp_path / "cat.jpg").write_bytes(b"cat")
    check_media(load(TEXT))


def test_faults(load: Callable[..., Sequence[Scenario]], tmp_path: Path) -> None:
    """A media file that is missing, has no audio or is too long is a fault of its turn."""
    write_wav(tmp_path / "two.wav", [silence(600.1, 8000)], rate=8000)
    scenarios = load(TEXT)
    with pytest.raises(ScenarioFileError) as caught:
        check_media(scenarios)
    first, second, third, fourth = str(caught.value).replace(f"{tmp_path}/", "").splitlines()
    assert first.startswith("calls.yaml:5:5: Cannot read the audio file one.wav: ")
    assert second == "calls.yaml:6:5: the recording two.wav is longer than 600 s"
    assert third == "calls.yaml:6:5: there is no image cat.jpg"
    assert fourth.startswith("calls.yaml:7:5: Cannot read the audio file one.wav: ")


@pytest.mark.parametrize("key", ["audio", "image"])
def test_a_path_that_no_system_has(load: Callable[..., Sequence[Scenario]], key: str) -> None:
    """A path that is too long is a fault of its turn, too."""
    text = f"name: a\nuser: {{modality: audio, speech: {{}}}}\nturns: [{{user: one, {key}: {'x' * 5000}}}]\n"
    with pytest.raises(ScenarioFileError, match=r"calls\.yaml:3:9: .*x{50}…") as caught:
        check_media(load(text))
    assert len(str(caught.value)) < 1000
