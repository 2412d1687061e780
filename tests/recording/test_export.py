"""The formats of `Recording.export()`."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import Recording


@pytest.mark.parametrize(
    ("name", "format_"),
    [
        ("talk.html", "html"),
        ("talk.vtt", "vtt"),
        ("talk.otlp.json", "otlp"),
        ("talk.trace.json", "chrome"),
        ("talk.conversation.json", "conversation"),
    ],
)
def test_the_suffix_names_the_format(
    talk: Recording, hostile: Recording, tmp_path: Path, name: str, format_: Any
) -> None:
    """A suffix, or the name of the format, gives the same text, which is written; any texts can be exported."""
    text = talk.export(tmp_path / name)
    assert (tmp_path / name).read_text("utf-8") == text
    if format_ != "html":  # a page names where the audio is
        assert talk.export(format=format_) == text
    if name.endswith(".json"):
        json.loads(hostile.export(tmp_path / f"hostile-{name}"))
    assert hostile.export(format=format_)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
@pytest.mark.parametrize("name", ["talk.html", "talk.vtt"])
def test_what_is_written_is_private(talk: Recording, tmp_path: Path, name: str) -> None:
    """A new file may be read by this user only; one that exists keeps the permissions that its owner gave it."""
    path = tmp_path / name
    talk.export(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    talk.export(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_no_format(talk: Recording, tmp_path: Path) -> None:
    """Without a format that is known the error names all suffixes and formats, and nothing is written."""
    cases: tuple[Any, ...] = ((tmp_path / "talk.pdf", None), (None, None), (None, "pdf"))
    for path, format_ in cases:
        with pytest.raises(
            ValueError,
            match=r"end the path in \.html, .*\.conversation\.json; .* html, vtt, otlp, chrome, conversation",
        ):
            talk.export(path, format_)
    assert list(tmp_path.iterdir()) == []


def test_a_page_with_its_audio(talk: Recording, tmp_path: Path) -> None:
    """A page plays the WAV file from where it is, or holds it."""
    elsewhere = tmp_path / "page.html"
    talk.report(elsewhere)
    assert f"/{talk.path.parent.name}/talk.wav" in elsewhere.read_text("utf-8")
    assert '"source":"talk.wav"' in talk.report()
    assert '"source":"data:audio/wav;base64,UklG' in talk.report(embed_audio=True)
