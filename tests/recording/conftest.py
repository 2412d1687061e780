"""A recording of several kinds of turns, and one whose texts are hostile."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtvi_sync import Recording
from tests.support.chromium import chromium, launch_chromium  # noqa: F401 - fixtures
from tests.support.recordings import HOSTILE, Script, a_talk


@pytest.fixture(scope="package")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Return a conversation with a greeting, calls, an interruption, a slow answer and an error."""
    return Recording.load(a_talk(tmp_path_factory.mktemp("talk")).write())


@pytest.fixture(scope="package")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Return a conversation whose words, calls, errors and marks are markup and control characters."""
    return Recording.load(a_hostile_talk(tmp_path_factory.mktemp("hostile")))


def a_hostile_talk(folder: Path) -> Path:
    script = Script(folder, "hostile", audio=False)
    for text in HOSTILE:
        script.turn(text, text, calls=[(text[:60], {text[:40]: text}, {"found": text})], error=text)
        script.row("mark", text=text)
    return script.write(error=HOSTILE[0])
