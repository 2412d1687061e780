"""The questions that the bot understands, and its answers. Standard library only."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

WEATHER = {
    "Berlin": ("cloudy", 14),
    "London": ("rainy", 12),
    "New York": ("windy", 18),
    "Paris": ("sunny", 21),
    "Tokyo": ("foggy", 16),
}

# The sentences that the speech recognition knows; `answer_to()` understands more, for those who type.
GRAMMAR = f"""#JSGF V1.0;
grammar questions;
public <question> = <hello> | <time> | <weather> | <joke> | <goodbye>;
<hello> = hello | good morning;
<time> = what time is it | what time is it now | what is the time;
<weather> = (what is | how is) the weather [like] in ({" | ".join(WEATHER).lower()}) [today];
<joke> = tell me a joke;
<goodbye> = goodbye for now | thank you goodbye;
"""

GREETING = "Hello! Ask me for the time, the weather or a joke."
JOKE = "Why did the robot go on holiday? It was tired and low on power."
GOODBYE = "Goodbye, and have a nice day."
CONFUSED = "I only know the time, the weather in five cities, and a joke."


class Call(NamedTuple):
    """A function that is called before the answer."""

    function: str
    arguments: dict[str, Any]


def answer_to(messages: Sequence[dict[str, Any]]) -> str | Call:
    """Return the answer to a conversation in OpenAI's format, or the call whose result is needed first."""
    if not messages:
        return GREETING
    last = messages[-1]
    if last["role"] == "tool":
        return _in_words(json.loads(last["content"]))
    text = str(last["content"]).lower()
    city = next((city for city in WEATHER if city.lower() in text), None)
    if "weather" in text and city:
        return Call("get_weather", {"city": city})
    if "time" in text:
        return Call("get_time", {})
    replies = {"joke": JOKE, "goodbye": GOODBYE, "hello": GREETING, "good morning": GREETING}
    return next((reply for word, reply in replies.items() if word in text), CONFUSED)


def get_time() -> dict[str, Any]:
    """Return the local time."""
    return {"time": time.strftime("%H:%M")}


def get_weather(city: str) -> dict[str, Any]:
    """Return the weather in a city, which is the same every day."""
    sky, degrees = WEATHER[city]
    return {"city": city, "sky": sky, "degrees": degrees}


def _in_words(result: dict[str, Any]) -> str:
    """Return the result of a function as a sentence."""
    if "time" in result:
        return f"It is {result['time']}."
    return f"In {result['city']} it is {result['sky']}, with {result['degrees']} degrees."
