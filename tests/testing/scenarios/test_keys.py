"""Errors about unknown keys and words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Fault = Callable[..., str]


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("turn: []", "a scenario file has no key 'turn'; did you mean 'turns'?"),
        ("user: {modalty: audio}", "'user' has no key 'modalty'; did you mean 'modality'?"),
        ("user: {zzz: audio}", "'user' has no key 'zzz'; it has modality, speech"),
        ("user: {modality: Audio}", "'modality' must be text or audio, not 'Audio'; did you mean 'audio'?"),
        ("user: {modality: zzz}", "'modality' must be text or audio, not 'zzz'"),
        ("user: {modality: [audio]}", "'modality' must be text or audio, not a list"),
        ("user: {modality: off}", "not a boolean (yes, no, on and off are such in YAML); write it in quotes"),
        ("judge: {transcription: {service: mosh}}", "'service' must be moonshine or whisper, not 'mosh'; did you mean"),
    ],
)
def test_hints(fault: Fault, text: str, end: str) -> None:
    """An error has the nearest name, or all names, and asks for quotes where they are needed."""
    assert end in fault(f"name: a\nturns: []\n{text}\n")


def test_what_is_shown_of_a_value(fault: Fault) -> None:
    """A value of any content is one short line."""
    found = fault('name: a\nturns: []\nuser: {modality: "\\e[31m\\n' + "x" * 1000 + '"}\n')
    assert found.isprintable()
    assert len(found) < 300
