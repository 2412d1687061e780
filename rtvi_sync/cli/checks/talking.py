"""Checks of the conversation: the bot's words, reports and hearing, and whether it can be interrupted."""

from __future__ import annotations

import re
from typing import Final

from rtvi_sync import BotError, ReportedFunctionCall, RequestTimeoutError, RTVIError, Turn
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.conversation.follow import about_bot
from rtvi_sync.protocol.text import one_line

from ..scripted_speech import SHIPPED, load_script
from .arrivals import Arrivals, arrivals_of
from .diagnosis import Diagnosis, fail, of_error, ok, skipped, warn
from .examination import Examination

# Seconds in which a greeting must start, and in which it should end.
_GREETING: Final = 3.0
_GREETED: Final = 3.0
# Seconds for an answer, after the end of the question.
_ANSWER: Final = 8.0
_HEARING: Final = 6.0
# Seconds after which the bot notices the end of the user's words too late.
_SLOW_END: Final = 1.5
# Seconds from the start of the bot's speech to the interruption, and the rest of the speech that it needs.
_DELAY: Final = 0.2
_SPEECH: Final = 1.5
_MAX_WORDS: Final = 60
_MAX_ABOUT: Final = 200
# The major numbers of the RTVI versions without bot-interrupted.
_SILENT_MAJORS: Final = ("0", "1")
# A question with a long answer.
_LONG: Final = "Please count slowly from one to twenty, in words."

_HEARS: Final = (
    "Set audio_in_enabled=True in the bot's transport_params, and give it speech recognition and voice activity "
    "detection (vad_analyzer)"
)
_LOG: Final = "Check the bot's log, its model, its key, and the services in its pipeline"
_VERSIONS: Final = (  # first version, first fixed version, and the known fault of pipecat-ai
    ((0,), (0, 0, 102), "reports no functions that its model calls: pass settle=3 to ask(), or use 0.0.102 or later"),
    (
        (0, 0, 85),
        (0, 0, 86),
        "answers a long typed question after a spoken one with one word at most: use a later version",
    ),
    ((0, 0, 101), (0, 0, 102), "is never ready over its entry websocket: use 0.0.102 or later, or webrtc"),
    ((0,), (0, 0, 74), "never answers an action that fails, nor any after it: give each a timeout"),
)


def version(exam: Examination) -> Diagnosis:
    """Report the bot's software, and the known faults of its version."""
    ready = exam.trial.ready
    assert ready is not None, "the bot is ready"
    text = one_line(about_bot(ready), _MAX_ABOUT) or "the bot does not report its software"
    if ready.about.library != "pipecat-ai":
        return ok(text)
    number = tuple(map(int, re.findall(r"\d{1,9}", ready.about.library_version or "")[:3]))
    faults = [fault for begin, end, fault in _VERSIONS if number and begin <= number < end]
    if not faults:
        return ok(text)
    what, cures = zip(*(fault.split(": ", 1) for fault in faults), strict=True)
    return warn(f"{text} {' and '.join(what)}", "; ".join(cures).capitalize())


def greeting(exam: Examination) -> Diagnosis:
    """Wait for the bot to speak first."""
    client = exam.client
    try:
        turn = client.listen(exam.seconds(_GREETING))
    except RequestTimeoutError:
        if not any(turn.is_open for turn in client.turns()):
            return ok(f"the bot does not speak first, within {_GREETING:g} s")
        try:
            turn = client.listen(exam.seconds(_GREETED))
        except RequestTimeoutError:
            turn = client.turns()[-1]
            return ok(f"the bot speaks first, at length: {_words(turn)}")
    return ok(f"the bot speaks first: {_words(turn)}")


def answer(exam: Examination) -> Diagnosis:
    """Type a question, and wait for words."""
    exam.take_frames()  # drops the greeting
    why: RTVIError | None = None
    try:
        turn: Turn | None = exam.client.ask(exam.question, exam.seconds(_ANSWER))
    except (BotError, RequestTimeoutError) as error:
        turn, why = error.turn, error
    exam.answer, exam.voice = turn, exam.take_frames()
    errors = "" if turn is None else one_line("; ".join(error.message for error in turn.errors))
    if turn is None or not turn.bot_text:
        if errors or not isinstance(why, RequestTimeoutError):
            return fail(f"no words arrived: the bot reported {errors or 'nothing'}", _LOG)
        return fail(f"no words arrived within {_ANSWER:g} s", _LOG)
    facts = [
        _words(turn),
        f"the bot reported {errors}" if errors else "",
        f"{turn.assumed}" if turn.assumed else "",
        f"not complete after {_ANSWER:g} s" if turn.is_open else "",
    ]
    return ok("; ".join(filter(None, facts)))


def function_reporting(exam: Examination) -> Diagnosis:
    """Check the function calls in the answer."""
    calls = () if exam.answer is None else exam.answer.function_calls
    if not calls:
        return skipped("the bot called no function (--ask a question that makes it call one)")
    if any(call.function_name is None or call.arguments is None for call in calls):
        return warn(
            "the bot reports its functions without names or arguments",
            "Give the bot's worker or task rtvi_observer_params=RTVIObserverParams(function_call_report_level="
            '{"*": RTVIFunctionCallReportLevel.FULL}); over the eval route the client can do it',
        )
    return ok(f"the bot called {one_line(', '.join(map(_call, calls)))}")


def audio_out(exam: Examination) -> Diagnosis:
    """Check the audio of the answer."""
    if exam.is_only_heard:
        return _only_heard(exam)
    turn = exam.answer
    arrivals = arrivals_of(exam.voice)
    if turn is None or arrivals is None or turn.time_to_first_audio is None:
        what = "nothing" if arrivals is None else "silence alone"
        return fail(
            f"the answer came as text, and {what} to hear",
            "Set audio_out_enabled=True in the bot's transport_params, and check its voice (TTS) in its log",
        )
    return ok(_heard(arrivals, turn.time_to_first_audio))


def _only_heard(exam: Examination) -> Diagnosis:
    """Check a bot that no text reaches: its greeting, and the answer to spoken words."""
    if exam.speaks:
        exam.heard, exam.unheard = _said(exam)
    exam.voice = exam.take_frames()
    arrivals = arrivals_of(exam.voice)
    if arrivals is not None:
        return ok(_heard(arrivals, None if exam.heard is None else exam.heard.time_to_first_audio))
    heard = [turn.audio for turn in exam.client.turns() if turn.audio]  # before the frames are taken
    if heard:
        return ok(f"{heard[0].sample_rate_hz} Hz")
    if not exam.speaks:
        return skipped("the bot does not speak first (--audio speaks to the bot)")
    return fail(
        "there was nothing to hear", "Set audio_out_enabled=True in the bot's transport_params, and see its log"
    )


def _heard(arrivals: Arrivals, after: float | None) -> str:
    """Return a description of the bot's audio.

    Args:
        arrivals: Arrival of its audio.
        after: Seconds after the question; None if unknown.
    """
    facts = [
        "" if after is None else f"heard after {1000 * after:.0f} ms",
        f"{arrivals.rate_hz} Hz in frames of {1000 * arrivals.chunk:.0f} ms",
        f"up to {arrivals.ahead:.1f} s ahead" if arrivals.ahead > 1 else "at the pace of speech",
        f"with {arrivals.gap_seconds:.2f} s of pauses" if arrivals.gaps else "without pauses",
    ]
    return ", ".join(filter(None, facts))


def audio_in(exam: Examination) -> Diagnosis:
    """Speak to the bot, and check its transcript."""
    if not exam.speaks:
        return skipped("--audio speaks to the bot")
    if exam.is_muted():
        return Diagnosis("skipped", "the bot has muted the user", needs="mute")
    if not exam.is_only_heard:  # otherwise an earlier check spoke
        exam.heard, exam.unheard = _said(exam)
    turn, unheard = exam.heard, exam.unheard
    if unheard is not None:
        return of_error(unheard, _HEARS)
    if exam.is_only_heard:
        if turn is None or turn.timings.bot_started_speaking is None:
            return fail("the bot did not answer the spoken words", _HEARS)
        return ok(f"the bot answered the spoken words: {_words(turn)}")
    if turn is None or not turn.user_text:
        return warn("the bot heard a voice but no words", "Check speech recognition (STT) in the bot's log")
    return ok(f"the bot heard {_quoted(turn.user_text)}")


def _said(exam: Examination) -> tuple[Turn | None, RequestTimeoutError | None]:
    """Speak to the bot; return its answer, and the error if it heard nothing."""
    speech = load_script(SHIPPED)
    said = speech.utterances[0]
    limit = exam.seconds(speech.seconds(said) + _HEARING)
    try:
        return exam.client.ask(said, limit, sample_rate_hz=speech.sample_rate_hz), None
    except RequestTimeoutError as error:
        return error.turn, error if error.kind == "not_heard" else None
    except BotError as error:
        return error.turn, None


def mute(exam: Examination) -> Diagnosis:
    """Check that the bot does not keep ignoring the user."""
    if not exam.is_muted():
        return ok("the bot listens")
    return fail(
        "the bot has muted the user (user-mute-started), and never unmuted them",
        "See the bot's user_mute_strategies: some wait for first words of the bot that it never speaks",
    )


def vad(exam: Examination) -> Diagnosis:
    """Check how the bot noticed the start and the end of the words."""
    turn = exam.heard
    if turn is None:
        return skipped("--audio speaks to the bot")
    timings = turn.timings
    if timings.user_started is None or timings.user_stopped_reported is None:
        return warn(
            "the bot does not report when the user speaks",
            "Give the bot's user aggregator (before Pipecat 1.0: its transport) a vad_analyzer, or it cannot be "
            "interrupted",
        )
    late = turn.turn_detection
    if late is not None and late > _SLOW_END:
        return warn(
            f"the bot noticed the end of the words after {late:.1f} s",
            "Lower stop_secs of its VAD, or check its turn detection: this delays each answer",
        )
    return ok("the bot reports when the user speaks" + ("" if late is None else f", the end after {late:.1f} s"))


def interruption(exam: Examination) -> Diagnosis:
    """Speak while the bot speaks."""
    if not exam.speaks:
        return skipped("--audio interrupts the bot")
    speech = load_script(SHIPPED)
    limit = Deadline(exam.seconds(_ANSWER))
    pending = exam.client.barge_in(speech.utterances[0], delay=_DELAY, sample_rate_hz=speech.sample_rate_hz)
    try:
        if exam.is_only_heard:
            turn = exam.client.ask(speech.utterances[-1], limit.remaining(), sample_rate_hz=speech.sample_rate_hz)
        else:
            turn = exam.client.ask(_LONG, limit.remaining())
    except (RequestTimeoutError, BotError) as error:
        if error.turn is None or error.turn.timings.bot_started_speaking is None:
            return skipped("there was no speech to interrupt")
        turn = error.turn
    finally:
        pending.cancel()
    began, cut, ended = (
        turn.timings.bot_started_speaking,
        turn.timings.interrupted_at,
        turn.timings.bot_stopped_speaking,
    )
    if turn.interrupted and began is not None and cut is not None:
        return ok(f"the bot was interrupted {1000 * max(0.0, cut - began - _DELAY):.0f} ms after the voice began")
    if began is None or (ended is not None and ended - began < _SPEECH):
        return skipped("the answer was too short to interrupt it")
    ready = exam.trial.ready
    if ready is not None and (ready.version or "").partition(".")[0] in _SILENT_MAJORS:
        return skipped("a bot before RTVI 2.0 does not report that it was interrupted")
    return warn(
        "the bot kept speaking while the user spoke",
        "Give the bot voice activity detection (vad_analyzer), and see its turn strategies and mute strategies",
    )


def _words(turn: Turn) -> str:
    """Return the bot's words; if unknown, the duration of its speech."""
    if turn.bot_text is not None:
        return _quoted(turn.bot_text)
    return f"{turn.audio.seconds:.1f} s" if turn.audio else "still speaking"


def _quoted(text: str) -> str:
    return f'"{one_line(text, _MAX_WORDS)}"' if text else "without words"


def _call(call: ReportedFunctionCall) -> str:
    return f"{call.function_name}({', '.join(call.arguments or {})})"
