"""Files that a recording can be written to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rtvi_sync import RTVIError
from rtvi_sync.cli.recording_file import writable_path

pytestmark = pytest.mark.inside


def test_a_file_without_write_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write permission for its folder does not help."""
    path = tmp_path / "x.wav"
    path.touch()
    monkeypatch.setattr(os, "access", lambda asked, mode: asked != path)  # root may write everywhere
    with pytest.raises(RTVIError, match="--record"):
        writable_path(path, "--record")


def test_a_directory_is_refused(tmp_path: Path) -> None:
    """A directory is refused, and so is a file in a directory that does not exist or is a file."""
    assert writable_path(tmp_path / "x.wav", "--record") == tmp_path / "x.wav"
    (tmp_path / "file").touch()
    for wrong in (tmp_path, tmp_path / "no" / "x.wav", tmp_path / "file" / "x.wav"):
        with pytest.raises(RTVIError, match="--record"):
            writable_path(wrong, "--record")


def test_the_name_of_another_format_is_refused(tmp_path: Path) -> None:
    """WAV is all that is written; a name without an ending is the user's own."""
    assert writable_path(tmp_path / "x", "--record") == tmp_path / "x"
    with pytest.raises(
        RTVIError, match=r"--record: A WAV file would be written, but .*x.MP3 is the name of another format"
    ):
        writable_path(tmp_path / "x.MP3", "--record")
