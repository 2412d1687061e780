"""The actions in each captured session, the bot's and the client's."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import attrs

Step: TypeAlias = tuple[Literal["type", "note", "speak", "until", "wait", "quiet", "control", "answer"], Any]
ALL = ("1.14.0", "1.5.0", "0.0.108", "0.0.73")
NEW = ALL[:2]
NEWEST = ALL[:1]


@attrs.frozen
class Scenario:
    """One session.

    Attributes:
        steps: the client's actions, in order, and then it leaves.
            "type": send a text that runs the model, or a mapping with `text` and `aloud`. "note": send one that runs
            nothing. "speak": be heard for some seconds. "until": wait for a message of this type, or for the nth,
            `(type, n)`, counted from the last step that sends. "wait": some seconds. "quiet": until nothing has arrived
            for some seconds. "control": a control of the bot (tests/pipecat/bots/serving.py), `(path, parameters)`.
            "answer": `(function, result)`: the result of the client's function, from now on.
        bot: the script of the bot, of tests/pipecat/bots/script.py.
        versions: of Pipecat.
    """

    steps: tuple[Step, ...]
    bot: dict[str, Any] = attrs.field(factory=dict)
    versions: tuple[str, ...] = ALL


STORY = "There was a king who had three sons. The first was tall. The second was small. The third knew songs."
LONG = " ".join([STORY, "They went into the wood.", STORY, "And there they are to this day."])
MARKED = "**Two** things: [the sea](https://example.org), and 3 % of `it`. Grüße!"
QUIET: Step = ("quiet", 1.5)
# Until Pipecat 0.0.73 tells that it has spoken, and until a bot that may be mute counts as such.
LONGER: Step = ("quiet", 3.5)
SPOKE: tuple[Step, ...] = (("until", "bot-llm-started"), QUIET)
SPEAKS: Step = ("until", "bot-started-speaking")
NOT_0_3 = ALL[:3]  # the versions with features that 0.0.73 lacks

_CALL = ["call", [["get_weather", {"city": "Oslo"}]]]
WEATHER: dict[str, Any] = {
    "functions": {"get_weather": {"seconds": 0.4, "result": {"temperature": 12}}},
    "replies": {"Weather?": [_CALL], "after get_weather": [["write", "It is twelve degrees."]]},
}
CLIENT_WEATHER = {**WEATHER, "functions": {"get_weather": {"on": "client"}}}
FILLER = {"filler": "One moment please."}
SLOW = {"functions": {"get_weather": {"seconds": 2.5, "result": {"temperature": 12}}}}
TELLS_STORY = {"replies": {"Story?": [["write", STORY]]}}
SENTENCES = {"voice": "sentence"}

SCENARIOS: dict[str, Scenario] = {
    # typed
    "typed": Scenario((("type", "Hello"), QUIET)),
    "typed-three-times": Scenario((("type", "Hello"), QUIET, ("type", "Hello"), QUIET, ("type", "Hello"), QUIET)),
    "typed-no-final-punctuation": Scenario(
        (("type", "Hello"), QUIET), {"replies": {"Hello": [["write", "no end here"]]}}
    ),
    "typed-marked-text": Scenario((("type", "Hello"), QUIET), {"replies": {"Hello": [["write", MARKED]]}}),
    "typed-after-a-note": Scenario((("note", "I am Ann."), ("wait", 0.5), ("type", "Hello"), QUIET), versions=NOT_0_3),
    "sentence-voice": Scenario((("type", "Story?"), QUIET), {**SENTENCES, **TELLS_STORY}),
    "long-answer": Scenario((("type", "Story?"), QUIET), {"replies": {"Story?": [["write", LONG]]}}),
    "long-answer-in-sentences": Scenario(
        (("type", "Story?"), QUIET), {**SENTENCES, "replies": {"Story?": [["write", LONG]]}}
    ),
    "text-only": Scenario((("type", {"text": "Hello", "aloud": False}), LONGER), versions=NOT_0_3),
    "text-only-and-aloud": Scenario(
        (("type", {"text": "Hello", "aloud": False}), LONGER, ("type", "And now?"), QUIET), versions=NOT_0_3
    ),
    "text-only-function": Scenario((("type", {"text": "Weather?", "aloud": False}), LONGER), WEATHER, NOT_0_3),
    "no-voice": Scenario((("type", "Hello"), LONGER, ("type", "Again"), QUIET), {"voice": None}),
    "no-voice-function": Scenario((("type", "Weather?"), LONGER), {**WEATHER, "voice": None}),
    "no-audio-out": Scenario((("type", "Hello"), LONGER), {"audio_out": False}),
    "voice-without-model": Scenario((("type", "Hello"), QUIET, ("type", "Again"), QUIET), {"model": False}),
    "voice-without-model-spoken": Scenario((("speak", 0.8), SPEAKS, QUIET), {"model": False}),
    # spoken
    "spoken": Scenario((("speak", 0.8), *SPOKE)),
    "spoken-in-sentences": Scenario((("speak", 0.8), *SPOKE), SENTENCES),
    "spoken-twice": Scenario((("speak", 0.8), *SPOKE, ("speak", 0.6), *SPOKE), {"hears": ["hello bot", "good bye"]}),
    "spoken-with-a-pause": Scenario(
        (("speak", 0.8), ("until", "user-started-speaking"), ("wait", 1.2), ("speak", 0.5), *SPOKE),
        {"hears": ["hello bot", "how are you"], "waits": 0.8},
    ),
    "spoken-into-the-answer": Scenario(
        (("speak", 0.5), SPEAKS, ("wait", 0.3), ("speak", 0.5), *SPOKE), {"hears": ["hello bot", "how are you"]}
    ),
    "late-transcript": Scenario((("speak", 0.8), *SPOKE), {"hears_after": 0.7}),
    "spoken-and-typed": Scenario((("speak", 0.8), *SPOKE, ("type", "Hello"), QUIET)),
    "typed-while-speaking": Scenario((("speak", 1.5), ("wait", 0.7), ("type", "Hello"), LONGER)),
    "told-by-the-ear": Scenario((("speak", 0.8), *SPOKE), {"hearing": "stt"}, NOT_0_3),
    "speech-to-speech": Scenario(
        (("speak", 0.8), *SPOKE, ("speak", 0.8), *SPOKE),
        {"hearing": "model", "hears": ["hello bot", "good bye"]},
        NOT_0_3,
    ),
    "speech-to-speech-known": Scenario(
        (("speak", 0.8), *SPOKE, ("speak", 0.8), *SPOKE),
        {"hearing": "realtime", "hears": ["hello bot", "good bye"]},
        NEW,
    ),
    "speech-to-speech-interrupted": Scenario(
        (("speak", 0.8), SPEAKS, ("wait", 1.0), ("speak", 0.8), *SPOKE),
        {"hearing": "model", "hears": ["Story?", "stop it"], **TELLS_STORY},
        NOT_0_3,
    ),
    "decided-by-the-model": Scenario(
        (("speak", 0.8), *SPOKE, ("speak", 0.6), *SPOKE), {"decides": True, "hears": ["hello bot", "good bye"]}, NEWEST
    ),
    "decided-by-the-model-function": Scenario(
        (("speak", 0.8), SPEAKS, QUIET), {**WEATHER, "decides": True, "hears": ["Weather?"]}, NEWEST
    ),
    "decided-by-the-model-function-unreported": Scenario(
        (("speak", 0.8), SPEAKS, QUIET),
        {**WEATHER, "decides": True, "hears": ["Weather?"], "report": "disabled"},
        NEWEST,
    ),
    "decided-by-the-model-error": Scenario(
        (("speak", 0.8), ("until", "bot-llm-started"), LONGER),
        {"decides": True, "replies": {"hello bot": [["fail", "no credits"]]}},
        NEWEST,
    ),
    "not-finished": Scenario(
        (("speak", 0.6), ("until", "bot-llm-stopped"), ("wait", 0.3), ("speak", 0.6), SPEAKS, QUIET),
        {"decides": True, "hears": ["I want...", "a coffee"]},
        NEWEST,
    ),
    "not-finished-and-asked-to-go-on": Scenario(
        (("speak", 0.6), SPEAKS, QUIET), {"decides": True, "hears": ["I want..."]}, NEWEST
    ),
    "not-finished-and-given-up": Scenario(
        (("speak", 0.6), SPEAKS, QUIET), {"decides": True, "hears": ["I want..."], "gives_up": 0.5}, NEWEST
    ),
    "not-finished-and-typed": Scenario(
        (("speak", 0.6), ("until", "bot-llm-stopped"), ("type", "Hello"), SPEAKS, QUIET, ("speak", 0.6), SPEAKS, QUIET),
        {"decides": True, "hears": ["I want...", "a coffee"]},
        NEWEST,
    ),
    "muted-while-it-speaks": Scenario(
        (("type", "Story?"), SPEAKS, ("speak", 0.8), ("wait", 1.0), ("type", "Hello"), QUIET, ("speak", 0.8), *SPOKE),
        {"mutes": "speech", **TELLS_STORY},
        NEWEST,
    ),
    "muted-until-the-greeting-is-over": Scenario(
        (SPEAKS, ("speak", 0.5), QUIET, ("speak", 0.8), *SPOKE),
        {"mutes": "first", "greets": [["speak", "Welcome to the shop."]]},
        NEWEST,
    ),
    "muted-until-the-greeting-is-over-and-typed": Scenario(
        (("type", "Hello"), ("until", "bot-llm-stopped"), LONGER),
        {"mutes": "first", "greets": [["speak", "Welcome to the shop."]]},
        NEWEST,
    ),
    # unasked
    "greeting": Scenario((QUIET, ("type", "Hello"), QUIET), {"greets": [["speak", "Welcome to the shop."]]}),
    "greeting-by-the-model": Scenario(
        (QUIET, ("type", "Hello"), QUIET),
        {"greets": [["run", "Greet."]], "replies": {"Greet.": [["write", "Welcome to the shop."]]}},
    ),
    "greeting-and-a-question-at-once": Scenario(
        (("type", "Hello"), LONGER), {"greets": [["speak", "Welcome to the shop."]]}
    ),
    "greeting-by-the-model-and-a-question-at-once": Scenario(
        (("type", "Hello"), LONGER),
        {"greets": [["run", "Greet."]], "replies": {"Greet.": [["write", "Welcome to the shop."]]}},
    ),
    "greeting-interrupted-by-text": Scenario(
        (SPEAKS, ("wait", 0.5), ("type", "Hello"), QUIET), {"greets": [["speak", "Welcome to the shop of all things."]]}
    ),
    "greeting-interrupted-by-voice": Scenario(
        (SPEAKS, ("speak", 0.8), *SPOKE), {"greets": [["speak", f"Welcome to the shop. {STORY}"]]}
    ),
    "unasked": Scenario((("type", "Hello"), QUIET, ("control", ("say", {"text": "Are you still there?"})), QUIET)),
    "unasked-first": Scenario((("control", ("say", {"text": "Are you there?"})), QUIET, ("speak", 0.8), *SPOKE)),
    # functions
    "function": Scenario((("type", "Weather?"), QUIET), WEATHER),
    "function-spoken": Scenario((("speak", 0.8), *SPOKE), {**WEATHER, "hears": ["Weather?"]}),
    "filler-and-function": Scenario((("type", "Weather?"), QUIET), {**WEATHER, **FILLER}),
    "filler-and-function-in-sentences": Scenario((("type", "Weather?"), QUIET), {**WEATHER, **FILLER, **SENTENCES}),
    "filler-and-slow-function": Scenario((("type", "Weather?"), LONGER), {**WEATHER, **FILLER, **SLOW}),
    "text-and-function": Scenario(
        (("type", "Weather?"), LONGER),
        {**WEATHER, "replies": {**WEATHER["replies"], "Weather?": [["write", "I will look."], _CALL]}},
    ),
    "chain": Scenario(
        (("type", "Weather?"), LONGER),
        {
            "functions": {"get_place": {"seconds": 0.3, "result": "Oslo"}, **WEATHER["functions"]},
            "replies": {**WEATHER["replies"], "Weather?": [["call", [["get_place", {}]]]], "after get_place": [_CALL]},
        },
    ),
    "parallel": Scenario(
        (("type", "Weather?"), LONGER),
        {
            "functions": {"get_time": {"seconds": 0.8, "result": "noon"}, **WEATHER["functions"]},
            "replies": {
                "Weather?": [["call", [["get_weather", {"city": "Oslo"}], ["get_time", {}]]]],
                "after get_time": [["write", "It is noon."]],
            },
        },
    ),
    "client-function": Scenario(
        (("answer", ("get_weather", {"temperature": 12})), ("type", "Weather?"), LONGER), CLIENT_WEATHER
    ),
    "client-function-and-filler": Scenario(
        (("answer", ("get_weather", {"temperature": 12})), ("type", "Weather?"), LONGER), {**CLIENT_WEATHER, **FILLER}
    ),
    "function-by-name": Scenario((("type", "Weather?"), LONGER), {**WEATHER, "report": "name"}, NOT_0_3),
    "function-without-name": Scenario((("type", "Weather?"), LONGER), {**WEATHER, "report": "none"}, NOT_0_3),
    "function-unreported": Scenario((("type", "Weather?"), LONGER), {**WEATHER, "report": "disabled"}, NOT_0_3),
    "function-interrupted": Scenario(
        (("type", "Weather?"), ("until", "bot-llm-stopped"), ("wait", 0.5), ("type", "Stop."), LONGER),
        {**WEATHER, **SLOW},
    ),
    # interruptions
    "interrupted-by-text": Scenario((("type", "Story?"), SPEAKS, ("wait", 1.0), ("type", "Stop."), QUIET), TELLS_STORY),
    "interrupted-by-text-in-sentences": Scenario(
        (("type", "Story?"), SPEAKS, ("wait", 2.5), ("type", "Stop."), QUIET), {**SENTENCES, **TELLS_STORY}
    ),
    "interrupted-by-voice": Scenario((("type", "Story?"), SPEAKS, ("speak", 0.8), *SPOKE), TELLS_STORY),
    "interrupted-by-voice-in-sentences": Scenario(
        (("type", "Story?"), SPEAKS, ("wait", 2.0), ("speak", 0.8), *SPOKE), {**SENTENCES, **TELLS_STORY}
    ),
    "interrupted-twice": Scenario(
        (
            ("type", "Story?"),
            SPEAKS,
            ("wait", 1.0),
            ("type", "Story?"),
            SPEAKS,
            ("wait", 0.5),
            ("type", "Stop."),
            QUIET,
        ),
        TELLS_STORY,
    ),
    "interrupted-while-writing": Scenario(
        (("type", "Story?"), ("until", "bot-llm-text"), ("wait", 0.4), ("type", "Stop."), LONGER),
        {"replies": {"Story?": [["write", "Well then."], ["pause", 2.0], ["write", STORY]]}},
    ),
    "two-quick-questions": Scenario((("type", "First"), ("type", "Second"), QUIET)),
    "two-quick-questions-in-sentences": Scenario((("type", "First"), ("type", "Second"), QUIET), SENTENCES),
    "a-question-into-the-first-word": Scenario(
        (("type", "First"), ("until", "bot-llm-text"), ("type", "Second"), QUIET)
    ),
    "three-quick-questions": Scenario((("type", "First"), ("type", "Second"), ("type", "Third"), QUIET)),
    # nothing, errors, ends
    "empty-answer": Scenario((("type", "Hello"), LONGER), {"replies": {"Hello": []}}),
    "empty-answer-and-another": Scenario(
        (("type", "Hello"), LONGER, ("type", "Again"), QUIET), {"replies": {"Hello": []}}
    ),
    "error-for-an-answer": Scenario((("type", "Hello"), LONGER), {"replies": {"Hello": [["fail", "no credits"]]}}),
    "error-in-mid-answer": Scenario(
        (("type", "Hello"), QUIET),
        {"replies": {"Hello": [["write", "Well then."], ["fail", "a hiccup"], ["write", " Go on."]]}},
    ),
    "fatal-error-in-mid-answer": Scenario(
        (("type", "Hello"), QUIET),
        {"replies": {"Hello": [["write", "Well then."], ["pause", 0.8], ["fail", "it broke", True], ["pause", 1.0]]}},
    ),
    "voice-fails": Scenario(
        (("type", "Story?"), ("quiet", 4.5), ("type", "Again"), QUIET),
        {**SENTENCES, "replies": {"Story?": [["write", "There was a king."]]}, "voice_fails": 1},
    ),
    "voice-fails-at-first": Scenario((("type", "Story?"), LONGER), {**SENTENCES, **TELLS_STORY, "voice_fails": 1}),
    "voice-by-word-fails-at-first": Scenario((("type", "Story?"), LONGER), {**TELLS_STORY, "voice_fails": 1}),
    "the-bot-ends-in-mid-answer": Scenario(
        (("type", "Story?"), SPEAKS, ("control", ("control/end", {})), LONGER), TELLS_STORY
    ),
    "the-bot-leaves-in-mid-answer": Scenario(
        (("type", "Story?"), SPEAKS, ("wait", 0.7), ("control", ("control/cancel", {})), QUIET), TELLS_STORY
    ),
    "the-line-breaks-in-mid-answer": Scenario(
        (("type", "Story?"), SPEAKS, ("wait", 0.7), ("control", ("control/drop", {})), QUIET), TELLS_STORY
    ),
}
