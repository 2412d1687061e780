"""Requirements of a bot. The same tests run against an embedded bot, and, with --rtvi-url, against a live one."""

from __future__ import annotations

import pytest

from rtvi_sync import RTVIClient

ANSWERS = {
    "joke": "Why did the robot go on holiday? It was tired and low on power.",
    "weather": "I only know the time, the weather in five cities, and a joke.",
}


def reply(text: str) -> str:
    """Give the answers of samples/local_bot."""
    return next((answer for word, answer in ANSWERS.items() if word in text.lower()), "Hello! Ask me for a joke.")


pytestmark = pytest.mark.rtvi(replies=reply)


@pytest.mark.parametrize("question", ["Hello", "Hello there"])
def test_it_says_what_it_can(rtvi_client: RTVIClient, question: str) -> None:
    """The bot answers a greeting with its purpose."""
    rtvi_client.ask(question).expect(contains="Ask me for", excludes="goodbye")


def test_the_joke(rtvi_client: RTVIClient) -> None:
    """The joke is told whole, and soon."""
    turn = rtvi_client.ask("Tell me a joke")
    turn.expect(matches=r"robot.*low on power", absent_calls=["get_weather"], first_audio=5)
    assert turn.audio.seconds > 1


def test_an_unknown_city(rtvi_client: RTVIClient) -> None:
    """The bot admits that it does not know."""
    rtvi_client.ask("How is the weather in Atlantis?").expect(contains="I only know", absent_calls=["get_weather"])


@pytest.mark.rtvi(live=True)
def test_the_weather(rtvi_client: RTVIClient) -> None:
    """The function is called with the city, and its result is in the answer."""
    turn = rtvi_client.ask("What is the weather in Paris?")
    turn.expect(calls={"get_weather": {"city": "Paris"}}, contains="sunny")


def test_it_can_be_interrupted(rtvi_client: RTVIClient) -> None:
    """Who talks over the joke gets an answer."""
    second = rtvi_client.barge_in("Hello", delay=0.3)
    rtvi_client.ask("Tell me a joke").expect(interrupted=True)
    second.result().expect(contains="Ask me for")
