"""The script of a bot: the words that it hears, writes and says, and its calls. It imports no Pipecat."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Script:
    """A script for one session, from JSON.

    Attributes:
        hears: the transcripts, one for each utterance, round and round.
        hears_after: seconds that a transcript takes.
        greets: the steps when the client is ready, as in `replies`.
        replies: the model's steps, by the text that it answers: the last one, or "after NAME", a function's result.
            A step is ["write", text], ["call", [[name, arguments], ...]], ["fail", text, fatal], ["pause", seconds] or
            ["speak", text]: words that the model has not written.
        functions: by name: `seconds` that it takes, `result`; `on` "client": it runs there.
        filler: said when functions are called; "": nothing.
        report: how exactly calls are reported.
        observed: parameters of the RTVI observer, such as `user_input_enabled`.
        voice: how the voice reports its words, "word" or "sentence"; None: the bot has none.
        voice_fails: how many of its first sentences the voice fails to speak.
        model: False: its answers are spoken without a language model.
        hearing: who tells when the user speaks: "vad", the "stt" service, or the "model", which then hears and speaks
            itself; "realtime": the same, and Pipecat knows (from 1.5 on).
        decides: the model decides whether the user has finished (Pipecat's `FilterIncompleteUserTurnStrategies`): not
            after a text that ends with "...". Then it is asked to answer "Go on?" a second later.
        gives_up: seconds without speech after which the user counts as finished, whatever the model has decided.
        mutes: when the bot does not hear the user: "speech", while it speaks; "first", until it has spoken for the
            first time; "functions", while one runs; "": never.
        waits: seconds that the user may pause.
        audio_out: False: it has no audio to the client.
    """

    hears: list[str] = field(default_factory=lambda: ["hello bot"])
    hears_after: float = 0.0
    greets: list[Any] = field(default_factory=list)
    replies: dict[str, list[Any]] = field(default_factory=dict)
    functions: dict[str, Any] = field(default_factory=dict)
    filler: str = ""
    report: str = "full"
    observed: dict[str, bool] = field(default_factory=dict)
    voice: str | None = "word"
    voice_fails: int = 0
    model: bool = True
    hearing: str = "vad"
    decides: bool = False
    gives_up: float = 5.0
    mutes: str = ""
    waits: float = 0.2
    audio_out: bool = True

    def is_unfinished(self, messages: list[Any]) -> bool:
        """Return whether the model finds that the user has not finished."""
        return messages[-1]["role"] == "user" and _text(messages[-1]["content"]).endswith("...")

    def reply(self, messages: list[Any]) -> list[Any]:
        """Return the steps of the model that is given these messages, in OpenAI's form."""
        asked = (message for message in reversed(messages) if message["role"] != "assistant")
        last = next(asked, {"role": "user", "content": ""})
        if last["role"] == "tool":
            key = "after " + str(last["tool_call_id"]).rpartition("-")[0]
            return self.replies.get(key, [["write", f"The result is {last['content']}."]])
        key = _text(last["content"])
        return self.replies.get(key, [["write", f"You said: {key.rstrip('.!? ')}."]])


def tokens(text: str) -> list[str]:
    """Return a text as a model writes it."""
    return re.findall(r"\s*\S+", text)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(part["text"] for part in content if "text" in part)
