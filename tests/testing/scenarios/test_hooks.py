from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rtvi_sync.testing.scenarios.hooks import Hooks, ask_judge, speech_of
from rtvi_sync.testing.scenarios.judging import ChatJudge
from rtvi_sync.testing.scenarios.matching import AskJudge
from rtvi_sync.testing.scenarios.media import MAX_SPEECH
from tests.support.wavs import tone, write_wav

pytestmark = pytest.mark.inside

ASKED = AskJudge("It is polite", "Good morning")


@pytest.mark.parametrize(
    ("given", "verdict", "reason"),
    [
        (True, "yes", ""),
        (False, "no", ""),
        ("continue", "continue", ""),
        ((True, "it greets"), "yes", "it greets"),
        (("continue", "more"), "continue", "more"),
    ],
)
def test_verdicts(given: Any, verdict: str, reason: str) -> None:
    """A judge returns True, False or "continue", alone or with a reason."""
    judged = ask_judge(lambda *_: given, ASKED, [])
    assert (judged.verdict, judged.reason) == (verdict, reason)


@pytest.mark.parametrize("given", [None, "yes", 1, (True,), (True, None), [True, "x"]])
def test_no_verdicts(given: Any) -> None:
    """Anything else is an error, and so is an exception of the judge."""
    judged = ask_judge(lambda *_: given, ASKED, [])
    assert (judged.verdict, "TypeError" in judged.reason) == ("error", True)
    assert ask_judge(lambda *_: 1 / 0, ASKED, []).reason == "ZeroDivisionError: division by zero"


def test_the_question() -> None:
    """A function gets the user's last words; a `ChatJudge` gets the whole conversation, and calls as calls."""
    said = [("user", "Hi"), ("bot", "Hello"), ("user", "Who are you?"), ("bot", "A bot")]
    asked: list[Any] = []
    ask_judge(lambda *given: asked.append(given) or True, ASKED, said)  # type: ignore[func-returns-value]
    assert asked == [("Who are you?", "Good morning", "It is polite")]

    class Judge(ChatJudge):
        def judge(self, *given: Any, **more: Any) -> Any:
            asked.append((given, more))
            return True, ""

    judge = Judge("http://127.0.0.1:1/v1", "m")
    ask_judge(judge, ASKED, said)
    ask_judge(judge, AskJudge("Safe", 'a({"x": 1})', ("a", {"x": 1})), said)
    assert asked[1:] == [
        (("It is polite", said), {"reply": "Good morning", "call": None}),
        (("Safe", said), {"reply": "", "call": ("a", {"x": 1})}),
    ]


def test_speech(tmp_path: Path) -> None:
    """Speech is PCM with its rate, or an audio file's bytes."""
    pcm = tone(0.1)
    assert speech_of((pcm, 16_000)) == (pcm, 16_000)
    assert speech_of((bytearray(pcm), 8_000)) == (pcm, 8_000)
    assert speech_of(write_wav(tmp_path / "a.wav", [pcm]).read_bytes()) == (pcm, 16_000)


@pytest.mark.parametrize(
    "made",
    [None, "speech", (b"\0\0", "16000"), (b"\0", 16_000), (b"", 16_000), (b"\0\0",), b"no file", (b"\0\0", 0)],
)
def test_no_speech(made: Any) -> None:
    """Anything else is refused, and so is silence without length."""
    with pytest.raises((TypeError, ValueError)):
        speech_of(made)


def test_too_much_speech() -> None:
    """Speech is bounded."""
    with pytest.raises(ValueError, match=r"more than 600 s"):
        speech_of((bytes(2 * 8_000 * MAX_SPEECH + 2), 8_000))


def test_what_hooks_take() -> None:
    """Functions are checked where they are given."""
    Hooks(judge=lambda *_: True, tts=str, transcribe=lambda pcm, hz: "", next_line=lambda turns: None)
    Hooks(next_line=lambda turns, simulation: None)
    for wrong in (
        {"judge": lambda answer: True},
        {"tts": 5},
        {"transcribe": lambda pcm: ""},
        {"next_line": lambda: ""},
    ):
        with pytest.raises(TypeError, match=next(iter(wrong))):
            Hooks(**wrong)
