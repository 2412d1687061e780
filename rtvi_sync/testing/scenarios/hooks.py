"""The functions that a scenario needs beside the bot: they judge, speak, transcribe, and play the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

import attrs

from rtvi_sync.concurrency.clock import monotonic
from rtvi_sync.concurrency.deadline import on_main_thread
from rtvi_sync.media import BytesSource
from rtvi_sync.media.audio_files import decode
from rtvi_sync.protocol.record import Record
from rtvi_sync.protocol.text import raised
from rtvi_sync.protocol.validation import FUNCTION, function_taking, takes
from rtvi_sync.testing.scenarios.judging import ChatJudge
from rtvi_sync.testing.scenarios.matching import AskJudge, Judged
from rtvi_sync.testing.scenarios.media import MAX_SPEECH, is_too_long

T = TypeVar("T")

_VERDICTS: Final[Mapping[object, Literal["yes", "no", "continue"]]] = {True: "yes", False: "no", "continue": "continue"}


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Hooks(Record):
    """The functions that a scenario needs beside the bot. Any of them may be None.

    Attributes:
        judge: ``judge(question, answer, criterion)`` returns whether the answer meets the criterion, or "continue";
            also as a pair with the reason.
        tts: ``tts(text)`` returns speech: 16-bit mono PCM with its sample rate, or the bytes of an audio file.
        transcribe: ``transcribe(pcm, sample_rate_hz)`` returns the bot's words in a turn.
        next_line: ``next_line(turns)``, or ``next_line(turns, simulation)``, returns the next line of a simulated
            caller.
    """

    judge: Callable[..., Any] | None = attrs.field(
        default=None, validator=function_taking("question", "answer", "criterion").or_none
    )
    tts: Callable[..., Any] | None = attrs.field(default=None, validator=function_taking("text").or_none)
    transcribe: Callable[..., Any] | None = attrs.field(
        default=None, validator=function_taking("pcm", "sample_rate_hz").or_none
    )
    next_line: Callable[..., Any] | None = attrs.field(default=None, validator=FUNCTION.or_none)

    def __attrs_post_init__(self) -> None:
        """Check the parameters of `next_line`."""
        if self.next_line is not None and not takes(self.next_line, (), None):
            function_taking("turns").check(next_line=self.next_line)


class HookError(Exception):
    """A hook raised, or returned an unusable value.

    Attributes:
        hook: Name of the hook.
        why: Reason in one line.
    """

    def __init__(self, hook: str, why: str) -> None:
        super().__init__(f"{hook} has failed: {why}")
        self.hook = hook
        self.why = why


def call_hook(hook: str, function: Callable[..., T], *given: Any) -> T:
    """Return the result of a function that calls a hook and checks its return value.

    Raises:
        HookError: The function raised. `sys.exit()` counts, except on the main thread, where a signal may cause it.
    """
    try:
        return function(*given)
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and on_main_thread():
            raise
        raise HookError(hook, raised(error)) from error


def ask_judge(judge: Callable[..., Any], need: AskJudge, said: Sequence[tuple[str, str]]) -> Judged:
    """Return the verdict of a judge. An exception or an invalid value of the judge becomes an "error" verdict.

    Args:
        judge: Judge, as in `Hooks`; a `ChatJudge` gets the whole conversation.
        need: Question for the judge.
        said: Earlier lines, as pairs of speaker and text.
    """
    try:
        verdict, reason = call_hook("judge", _verdict, judge, need, said)
    except HookError as error:
        return Judged("error", error.why, monotonic())
    return Judged(verdict, reason, monotonic())


def _verdict(
    judge: Callable[..., Any], need: AskJudge, said: Sequence[tuple[str, str]]
) -> tuple[Literal["yes", "no", "continue"], str]:
    if isinstance(judge, ChatJudge):
        given: Any = judge.judge(need.criterion, said, reply=need.answer if need.call is None else "", call=need.call)
    else:
        question = next((text for speaker, text in reversed(said) if speaker == "user"), "")
        given = judge(question, need.answer, need.criterion)
    verdict, reason = given if isinstance(given, tuple) and len(given) == 2 else (given, "")
    known = _VERDICTS.get(verdict) if isinstance(verdict, (bool, str)) else None
    if known is None or not isinstance(reason, str):
        raise TypeError(
            'it must return True, False or "continue", alone or in a pair with a reason (a str), not '
            f"{type(given).__name__}"
        )
    return known, reason


def speech_of(made: Any) -> tuple[bytes, int]:
    """Return the result of a `tts` hook as PCM and its sample rate.

    Raises:
        TypeError, ValueError: It is not PCM with a rate or an audio file, or it is too long.
        MissingExtraError: Only soundfile can read the file, but it is not installed.
    """
    if isinstance(made, (bytes, bytearray, memoryview)):
        made = decode(bytes(made), "What tts returned")
    if not (isinstance(made, tuple) and len(made) == 2):
        raise TypeError(
            f"tts must return 16-bit mono PCM with its sample rate, or a WAV file's bytes, not {type(made).__name__}"
        )
    source = BytesSource(*made)
    if not source.pcm:
        raise ValueError("tts returned no sound")
    if is_too_long(source.pcm, source.sample_rate_hz):
        raise ValueError(f"tts returned more than {MAX_SPEECH} s of sound")
    return source.pcm, source.sample_rate_hz
