"""The turns of each captured session, as a listener would tell them."""

from __future__ import annotations

from typing import Any

import attrs

from .scenarios import LONG, MARKED, STORY

WEATHER = ("get_weather", {"city": "Oslo"}, {"temperature": 12})


@attrs.frozen
class Expected:
    """One turn.

    Attributes:
        user: the user's typed or spoken words; None: the bot spoke first.
        bot: the bot's words.
        status: of the turn.
        spoken: the spoken part of those; None: all.
        calls: name, arguments and result of each function call.
        assumed: the missing part that the client waits for; None: nothing is missing.
        errors: the errors that the bot reported.
    """

    user: str | None
    bot: str
    status: str = "complete"
    spoken: str | None = attrs.field(default=None, kw_only=True)
    calls: tuple[Any, ...] = attrs.field(default=(), kw_only=True)
    assumed: str | None = attrs.field(default=None, kw_only=True)
    errors: tuple[str, ...] = attrs.field(default=(), kw_only=True)


HELLO = Expected("Hello", "You said: Hello.")
AGAIN = Expected("Again", "You said: Again.")
STOP = Expected("Stop.", "You said: Stop.")
HELLO_BOT = Expected("hello bot", "You said: hello bot.")
STOP_IT = Expected("stop it", "You said: stop it.")
GOOD_BYE = Expected("good bye", "You said: good bye.")
GREETING = Expected(None, "Welcome to the shop.")
NOTHING = Expected(None, "", "interrupted")
TWELVE = Expected("Weather?", "It is twelve degrees.", calls=(WEATHER,))
MOMENT = Expected("Weather?", "One moment please. It is twelve degrees.", calls=(WEATHER,))
TOLD = Expected("Story?", STORY)
FIRST, SECOND, THIRD = (Expected(text, f"You said: {text}.") for text in ("First", "Second", "Third"))
SPEECH = "the bot's first speech"
GONE = "the voice is gone"
NO_AUDIO = "TTS context 0c0eb6bc-71da-4af6-be09-133edbe997bd completed with no audio"
A_RUN = "the model to run after a function, or after a run that said nothing"


def _cut(turn: Expected, spoken: str, bot: str | None = None) -> Expected:
    """Return a turn that was interrupted when this had been spoken, and perhaps not all had been written."""
    return attrs.evolve(turn, status="interrupted", spoken=spoken, bot=turn.bot if bot is None else bot)


# By scenario.
EXPECTED: dict[str, list[Expected]] = {
    "typed": [HELLO],
    "typed-three-times": [HELLO, HELLO, HELLO],
    "typed-no-final-punctuation": [Expected("Hello", "no end here")],
    "typed-marked-text": [Expected("Hello", MARKED)],
    "typed-after-a-note": [HELLO],
    "sentence-voice": [TOLD],
    "long-answer": [Expected("Story?", LONG)],
    "long-answer-in-sentences": [Expected("Story?", LONG)],
    "text-only": [HELLO],
    "text-only-and-aloud": [HELLO, Expected("And now?", "You said: And now.")],
    "text-only-function": [TWELVE],
    "no-voice": [attrs.evolve(HELLO, assumed=SPEECH), AGAIN],
    "no-voice-function": [attrs.evolve(TWELVE, assumed=SPEECH)],
    "no-audio-out": [HELLO],
    "voice-without-model": [HELLO, AGAIN],
    "voice-without-model-spoken": [HELLO_BOT],
    "spoken": [HELLO_BOT],
    "spoken-in-sentences": [HELLO_BOT],
    "spoken-twice": [HELLO_BOT, GOOD_BYE],
    "spoken-with-a-pause": [Expected("hello bot how are you", "You said: hello bot how are you.")],
    "spoken-into-the-answer": [_cut(HELLO_BOT, "You said: hello"), Expected("how are you", "You said: how are you.")],
    "late-transcript": [HELLO_BOT],
    "spoken-and-typed": [HELLO_BOT, HELLO],
    "typed-while-speaking": [HELLO_BOT, HELLO],
    "told-by-the-ear": [HELLO_BOT],
    "speech-to-speech": [HELLO_BOT, GOOD_BYE],
    "speech-to-speech-known": [HELLO_BOT, GOOD_BYE],
    "speech-to-speech-interrupted": [
        _cut(TOLD, "There was a king who had", STORY.removesuffix(" songs.")),
        STOP_IT,
    ],
    "decided-by-the-model": [HELLO_BOT, GOOD_BYE],
    "decided-by-the-model-function": [TWELVE],
    "decided-by-the-model-function-unreported": [attrs.evolve(TWELVE, calls=())],
    "decided-by-the-model-error": [Expected("hello bot", "", "failed", errors=("no credits",))],
    "not-finished": [Expected("I want... a coffee", "You said: a coffee.")],
    "not-finished-and-asked-to-go-on": [Expected("I want...", "You said: Go on.")],
    "not-finished-and-given-up": [Expected("I want...", "You said: Go on.")],
    "not-finished-and-typed": [Expected("I want... a coffee", "You said: a coffee."), HELLO],
    "muted-while-it-speaks": [TOLD, HELLO, HELLO_BOT],
    "muted-until-the-greeting-is-over": [GREETING, HELLO_BOT],
    "muted-until-the-greeting-is-over-and-typed": [HELLO, GREETING],
    "greeting": [GREETING, HELLO],
    "greeting-and-a-question-at-once": [HELLO],
    "greeting-by-the-model-and-a-question-at-once": [HELLO, NOTHING],
    "greeting-by-the-model": [GREETING, HELLO],
    "greeting-interrupted-by-text": [
        _cut(Expected(None, "Welcome to the shop of all things."), "Welcome to the"),
        HELLO,
    ],
    "greeting-interrupted-by-voice": [_cut(Expected(None, f"Welcome to the shop. {STORY}"), "Welcome"), HELLO_BOT],
    "unasked": [HELLO, Expected(None, "Are you still there?")],
    "unasked-first": [Expected(None, "Are you there?"), HELLO_BOT],
    "function": [TWELVE],
    "function-spoken": [TWELVE],
    "filler-and-function": [MOMENT],
    "filler-and-function-in-sentences": [MOMENT],
    "filler-and-slow-function": [MOMENT],
    "text-and-function": [Expected("Weather?", "I will look. It is twelve degrees.", calls=(WEATHER,))],
    "chain": [attrs.evolve(TWELVE, calls=(("get_place", {}, "Oslo"), WEATHER))],
    "parallel": [Expected("Weather?", "It is noon.", calls=(WEATHER, ("get_time", {}, "noon")))],
    "client-function": [TWELVE],
    "client-function-and-filler": [MOMENT],
    "function-by-name": [attrs.evolve(TWELVE, calls=(("get_weather", None, None),))],
    "function-without-name": [attrs.evolve(TWELVE, calls=((None, None, None),))],
    "function-unreported": [attrs.evolve(TWELVE, calls=())],
    "function-interrupted": [Expected("Weather?", "", "interrupted", calls=((*WEATHER[:2], None),)), STOP],
    "interrupted-by-text": [_cut(TOLD, "There was a king who had"), STOP],
    "interrupted-by-text-in-sentences": [_cut(TOLD, "There was a king who had three sons. The first was tall."), STOP],
    "interrupted-by-voice": [_cut(TOLD, "There", STORY.removesuffix(" songs.")), HELLO_BOT],
    "interrupted-by-voice-in-sentences": [_cut(TOLD, "There was a king who had three sons."), HELLO_BOT],
    "interrupted-twice": [_cut(TOLD, "There was a king who had"), _cut(TOLD, "There was a"), STOP],
    "interrupted-while-writing": [_cut(TOLD, "", "Well then."), STOP],
    "two-quick-questions": [FIRST, SECOND],
    "two-quick-questions-in-sentences": [FIRST, SECOND],
    "a-question-into-the-first-word": [_cut(FIRST, "", "You"), SECOND],
    "three-quick-questions": [FIRST, SECOND, THIRD],
    "empty-answer": [Expected("Hello", "", assumed=A_RUN)],
    "empty-answer-and-another": [Expected("Hello", "", assumed=A_RUN), AGAIN],
    "error-for-an-answer": [Expected("Hello", "", "failed", errors=("no credits",))],
    "error-in-mid-answer": [Expected("Hello", "Well then. Go on.", errors=("a hiccup",))],
    "fatal-error-in-mid-answer": [Expected("Hello", "Well then.", "failed", spoken="", errors=("it broke",))],
    "voice-fails": [Expected("Story?", "There was a king.", assumed=SPEECH, errors=(GONE,)), AGAIN],
    "voice-fails-at-first": [attrs.evolve(TOLD, errors=(GONE,))],
    "voice-by-word-fails-at-first": [attrs.evolve(TOLD, errors=(GONE,))],
    "the-bot-ends-in-mid-answer": [TOLD],
    "the-bot-leaves-in-mid-answer": [attrs.evolve(TOLD, status="failed", spoken="There was a king who had three")],
    "the-line-breaks-in-mid-answer": [attrs.evolve(TOLD, status="failed", spoken="There was a king")],
}


# By scenario and version, where versions differ. Before 1.0, Pipecat does not report interruptions of the bot, or the
# rest of a text that it was about to say without its model.
_SKIPPED = attrs.evolve(FIRST, bot="", status="interrupted")
_MUTE = [attrs.evolve(HELLO, assumed=SPEECH)]
_LEFT = [attrs.evolve(TOLD, status="failed", spoken="There was a king")]
EXPECTED |= {
    "no-audio-out 1.5.0": _MUTE,
    "no-audio-out 0.0.108": _MUTE,
    "no-audio-out 0.0.73": _MUTE,
    "speech-to-speech-interrupted 1.5.0": [_cut(TOLD, "There was a king who had"), STOP_IT],
    "speech-to-speech-interrupted 0.0.108": [_cut(TOLD, "There was a king who had"), STOP_IT],
    "greeting-interrupted-by-text 0.0.108": [Expected(None, "Welcome to the", "interrupted"), HELLO],
    "greeting-interrupted-by-text 0.0.73": [Expected(None, "Welcome to the"), HELLO],
    "greeting-interrupted-by-voice 0.0.108": [Expected(None, "Welcome"), HELLO_BOT],
    "greeting-interrupted-by-voice 0.0.73": [Expected(None, "Welcome"), HELLO_BOT],
    "interrupted-by-voice 1.5.0": [_cut(TOLD, "There"), HELLO_BOT],
    "interrupted-by-voice 0.0.108": [_cut(TOLD, "There"), HELLO_BOT],
    "interrupted-by-voice 0.0.73": [_cut(TOLD, "There", STORY.removesuffix(" The third knew songs.")), HELLO_BOT],
    "interrupted-while-writing 0.0.73": [Expected("Story?", "Well then.", "interrupted"), STOP],
    "fatal-error-in-mid-answer 0.0.73": [Expected("Hello", "Well then.", "failed", errors=("it broke",))],
    "voice-fails 1.14.0": [
        Expected("Story?", "There was a king.", assumed=SPEECH, errors=(GONE, NO_AUDIO)),
        AGAIN,
    ],
    # 1.5.0 tells nothing of the sentence that was not spoken.
    "voice-by-word-fails-at-first 1.5.0": [attrs.evolve(TOLD, errors=(GONE,), assumed="the rest to be spoken")],
    "the-bot-leaves-in-mid-answer 1.5.0": _LEFT,
    "the-bot-leaves-in-mid-answer 0.0.108": _LEFT,
    "the-bot-leaves-in-mid-answer 0.0.73": _LEFT,
    # 0.0.73 asks twice.
    "spoken-with-a-pause 0.0.73": [
        Expected("hello bot how are you", "", "interrupted"),
        Expected("how are you", "You said: how are you."),
    ],
    # 0.0.108 joins quick questions: both runs answer the last one.
    "two-quick-questions 0.0.108": [_SKIPPED, attrs.evolve(SECOND, bot=f"{SECOND.bot} {SECOND.bot}")],
    "two-quick-questions-in-sentences 0.0.108": [_SKIPPED, attrs.evolve(SECOND, bot=f"{SECOND.bot} {SECOND.bot}")],
    "three-quick-questions 0.0.108": [
        _SKIPPED,
        attrs.evolve(SECOND, bot="", status="interrupted"),
        attrs.evolve(THIRD, bot=f"{THIRD.bot} {THIRD.bot} {THIRD.bot}"),
    ],
    "greeting-and-a-question-at-once 1.5.0": [HELLO, NOTHING],
    "greeting-and-a-question-at-once 0.0.108": [Expected(None, "Welcome", "interrupted"), HELLO],
    "greeting-and-a-question-at-once 0.0.73": [HELLO, Expected(None, "Welcome")],
    "greeting-by-the-model-and-a-question-at-once 0.0.108": [NOTHING, HELLO],
    "greeting-by-the-model-and-a-question-at-once 0.0.73": [NOTHING, HELLO],
    # 0.0.73 cuts the first ones.
    "three-quick-questions 0.0.73": [_SKIPPED, attrs.evolve(SECOND, bot="", status="interrupted"), THIRD],
    "two-quick-questions 0.0.73": [_SKIPPED, SECOND],
    "two-quick-questions-in-sentences 0.0.73": [_SKIPPED, SECOND],
}


def expected_of(scenario: str, version: str) -> list[Expected]:
    """Return the turns of one log."""
    turns = EXPECTED.get(f"{scenario} {version}") or EXPECTED[scenario]
    if version == "0.0.73" and not scenario.startswith("client"):  # it does not report the functions of the server
        return [attrs.evolve(turn, calls=()) for turn in turns]
    return turns
