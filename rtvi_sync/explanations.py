"""The errors of the first minutes, with cause and cure. docs/guides/errors.md is made of this table."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["DOCUMENTATION", "EXPLANATIONS", "PAGES", "Explanation", "explanations_of", "hint_of"]

# The URL of the published documentation, with "/" at the end; empty until it is published.
DOCUMENTATION = ""


class Explanation(NamedTuple):
    """The cause and the cure of an error.

    Attributes:
        word: Its short name, which `rtvi-sync explain` takes, and the anchor of its paragraph.
        text: The part of the message by which the error is found.
        cause: The cause, in whole sentences.
        cure: The next steps, in whole sentences.
        page: The page of the documentation that says more: a key of `PAGES`, or "".
    """

    word: str
    text: str
    cause: str
    cure: str
    page: str = ""


EXPLANATIONS: dict[str, tuple[Explanation, ...]] = {
    "The server isn't found": (
        Explanation(
            "no-scheme",
            "it has no scheme",
            "The URL doesn't say how to connect.",
            'Put `http://` before it: `connect("http://HOST:7860")`.',
        ),
        Explanation(
            "no-bot",
            "No bot was reached",
            "Every way to the bot failed. The message has a line for each.",
            "Read the line of your bot's transport. To try only that one, pass `transport=`.",
            "connecting",
        ),
        Explanation(
            "unreachable",
            "cannot be reached",
            "Nothing listens at this address, or the network doesn't lead there.",
            "Start the bot. Check host and port.",
        ),
        Explanation(
            "no-server",
            "Check the URL, and that the server is running",
            "The server that starts the bot doesn't answer.",
            "Start it. Check host and port.",
        ),
        Explanation(
            "browser-page",
            "is a page for browsers",
            "This is the URL of the runner's web page, copied from a browser.",
            'Drop the path: `connect("http://HOST:7860")`.',
            "pipecat",
        ),
        Explanation(
            "not-http",
            "takes no start request",
            "The URL starts with `http://`, but leads to a WebSocket.",
            'Use `connect("ws://HOST:PORT/ws")`, or the server\'s URL without a path.',
            "connecting",
        ),
        Explanation(
            "not-json",
            "did not answer with JSON",
            "The URL leads to a web page.",
            "Pass the URL of the start endpoint, which ends in `/start`, or the server's without a path.",
        ),
        Explanation(
            "no-endpoint",
            "Give the whole URL of the endpoint",
            "The server has no `/start` and no `/connect`.",
            "Pass the endpoint's whole URL, or the URL of the server's WebSocket.",
            "connecting",
        ),
        Explanation(
            "wrong-endpoint",
            "Check the URL of the",
            "The server answered 404, 405 or 501: it has no such endpoint.",
            "Pass the endpoint's whole URL.",
        ),
        Explanation(
            "no-path",
            "The URL has no path",
            "The server answered, but has no WebSocket at `/`.",
            "Add the path. Pipecat's runner has `/ws` (eval) and `/ws-client` (protobuf).",
            "pipecat",
        ),
        Explanation(
            "wrong-path",
            "Check the path of the URL (ws_url)",
            "The server answered, but has no WebSocket at this path.",
            "Pass the `http://` URL of the server, which names its paths. Pipecat's runner has `/ws` and `/ws-client`. "
            "A proxy in front must pass WebSockets on: nginx needs `proxy_http_version 1.1` and, by "
            "`proxy_set_header`, `Upgrade $http_upgrade` and `Connection upgrade`.",
        ),
    ),
    "The server refuses": (
        Explanation(
            "needs-headers",
            "that the server requires",
            "The server answered 401 or 403: it expects a key.",
            'Pass it: `connect(url, headers={"Authorization": "Bearer KEY"})`.',
        ),
        Explanation(
            "needs-token",
            "pass the one that the server issued for this session",
            "The WebSocket answered 401: it expects the token of a session.",
            "Connect to the server's `http://` URL, which gets a token, or pass `token=`.",
        ),
        Explanation(
            "bad-token",
            "token may be missing, wrong, expired, or used before",
            "The server answered 403: it refuses the token, the path, or the origin (`--allowed-origins`).",
            "Connect to the server's `http://` URL, which gets a new token each time. "
            "If you pass a token, also name the `transport`, because the first of two would use it up. "
            'For `--allowed-origins`, pass `headers={"Origin": "…"}`.',
            "connecting",
        ),
        Explanation(
            "needs-login",
            "requires a user and a password",
            "The server, or a proxy in front, asks for a login (HTTP Basic).",
            "Use `wss://USER:PASSWORD@HOST/…`, with special characters escaped, or `headers=`.",
        ),
        Explanation(
            "wrong-login",
            "does not accept the user and password",
            "The server refused the login.",
            "Correct the user or the password. In a URL, escape special characters: `%40` for `@`.",
        ),
        Explanation(
            "wrong-form",
            "expects another form of",
            "The server answered 422: the request lacks a value.",
            "Set `request_data` as the server expects it. For an offer, check `webrtc_url`.",
        ),
        Explanation(
            "server-failed",
            "See the server's log",
            "The server has the request, and failed (status 500 and above).",
            "Read its log: a key may be missing there.",
        ),
        Explanation(
            "one-client",
            "may serve one client at a time",
            "The bot serves one client (`ConnectionMode.SINGLE`), and is busy with another.",
            "End that session, or wait.",
        ),
        Explanation(
            "needs-tls",
            "speaks TLS",
            "The server expects TLS, and got a plain request.",
            "Use `https://` or `wss://`.",
        ),
        Explanation(
            "no-tls",
            "does not speak TLS",
            "The URL starts with `https://` or `wss://`, but this port of the server has no TLS.",
            'Connect without TLS, `connect("http://HOST:7860")`, on your machine or network only. '
            "Otherwise check host and port.",
        ),
        Explanation(
            "bad-certificate",
            "its certificate is not trusted",
            "The certificate is too old, names another server, or its authority isn't known here.",
            'For an authority of your own, pass `ssl_context=ssl.create_default_context(cafile="ca.pem")`.',
        ),
        Explanation(
            "not-encrypted",
            "is not encrypted: an attacker",
            "The start endpoint has TLS, but named a `ws://` URL.",
            'Let it name a `wss://` URL. If a proxy adds TLS, use `connect("wss://HOST/ws")`.',
        ),
    ),
    "The bot doesn't get ready": (
        Explanation(
            "hung-up",
            "The server hung up before the bot had sent anything",
            "The server accepted the WebSocket, then the bot failed to start.",
            "See the bot's log. Give the bot the entry that the message names.",
            "pipecat",
        ),
        Explanation(
            "call-hung-up",
            "The bot hung up before it said anything",
            "The bot took the telephone call and failed to start.",
            "See the bot's log. Give the bot the entry that the message names.",
            "testing-phone-bots",
        ),
        Explanation(
            "no-rtvi",
            "A bot without RTVI",
            "The bot accepted the connection, but never reported that it is ready.",
            "Give the bot an RTVI processor: remove `enable_rtvi=False`. If it loads slowly, raise `connect_timeout`.",
            "pipecat",
        ),
        Explanation(
            "too-slow",
            "the time was spent on",
            "The bot wasn't ready in time. The message and `error.phase` name the slow step.",
            "For a slow bot, raise `connect_timeout` and name the `transport`. Otherwise see the bot's log.",
            "connecting",
        ),
        Explanation(
            "wrong-frames",
            "frames instead",
            "The bot sends text where this transport expects binary frames, or the reverse.",
            "Use the other WebSocket transport.",
            "connecting",
        ),
        Explanation(
            "not-protobuf",
            "messages that are not Pipecat's protobuf frames",
            "The bot has another serializer, or the server isn't a bot.",
            "Give the bot's transport a `ProtobufFrameSerializer`, or use the eval transport.",
            "connecting",
        ),
        Explanation(
            "other-transport",
            "which needs another transport",
            "The server started the bot in a Daily room, or for WebRTC.",
            "For WebRTC, `pip install 'rtvi_sync[webrtc]'`. "
            "Daily rooms can't be reached: start the bot for WebSocket. Pipecat's runner 1.5 to 1.12 needs `-t eval`, "
            'other servers `params={"request_data": {"transport": "websocket"}}`.',
            "pipecat",
        ),
    ),
    "Your program": (
        Explanation(
            "not-connected",
            "call connect() first",
            "The client is not connected, or its session has ended.",
            "Call `connect()`. To have a lost session replaced, pass a `ReconnectPolicy`.",
            "reconnecting",
        ),
        Explanation(
            "missing-extra",
            "needs the extra",
            "An optional part of the package isn't installed.",
            "Run the command that the message names.",
        ),
        Explanation(
            "no-sound-device",
            "To use none, pass mic=False and speaker=False",
            "No mic and no speaker: no microphone is there, or no library for it.",
            "Follow the message, or pass files: `mic=WavSource(path)`, `speaker=WavSink(path)`.",
            "no-sound",
        ),
        Explanation(
            "in-handler",
            "called inside a handler",
            "Handlers run one at a time, so the call would wait for itself (`WouldDeadlockError`).",
            "Call it on another thread.",
        ),
        Explanation(
            "forked",
            "was connected when the process forked",
            "A session belongs to the process that connected (`ForkedProcessError`).",
            "Connect in the child process, for example in the request.",
            "processes",
        ),
    ),
    "WebRTC": (
        Explanation(
            "no-packets",
            "No network packet came from the bot",
            "UDP doesn't pass between this machine and the bot.",
            "Use a TURN server over TCP, or a WebSocket.",
            "webrtc",
        ),
        Explanation(
            "no-network",
            "This machine has no address for WebRTC",
            "The machine has only a loopback network, which WebRTC doesn't use.",
            "Connect the machine to a network, or use a WebSocket.",
            "webrtc",
        ),
        Explanation(
            "no-audio",
            "has refused the audio",
            "The bot's answer has no audio.",
            "Set `audio_in_enabled=True` and `audio_out_enabled=True` in the bot's transport.",
            "pipecat",
        ),
        Explanation(
            "no-session-id",
            "needs a sessionId",
            "The start endpoint started the bot for another transport, or isn't Pipecat's.",
            "Start the bot for `webrtc`, or pass the offer's URL: `SmallWebRTCTransport(webrtc_url=…)`.",
        ),
        Explanation(
            "no-consent",
            "the bot no longer answers ICE",
            "A machine is too busy, or something blocks the client's packets.",
            "Run fewer sessions. Pass a `ReconnectPolicy`.",
            "reconnecting",
        ),
        Explanation(
            "silence",
            "no packet has come for",
            "The bot's process ended, the network is gone, or this machine's address changed.",
            "Connect again, or pass a `ReconnectPolicy`.",
            "reconnecting",
        ),
    ),
    "Microphones and speakers": (
        Explanation(
            "no-device",
            "Plug one in, or, on Linux, start the sound server",
            "Nothing is plugged in, or the sound server isn't reached.",
            "Start the server. Run a service as a user service.",
            "no-sound",
        ),
        Explanation(
            "device-hung",
            "does not answer. Unplug",
            "The device or the sound server hangs. The session goes on.",
            "Unplug the device, or restart the server.",
        ),
    ),
    "Questions and files": (
        Explanation(
            "no-answer",
            "The bot's answer did not begin",
            "The bot has the question, and its model has written nothing: a wrong key, no credit, or a slow model.",
            "See the bot's log. `rtvi-sync doctor URL` asks a question and shows each step.",
            "pipecat",
        ),
        Explanation(
            "not-complete",
            "The bot's answer was not complete",
            "The bot began to answer, and didn't report the end in time. The message has the answer so far.",
            "Pass a larger `timeout`, look at the error's `.turn`, or see the bot's log.",
            "turns",
        ),
        Explanation(
            "not-heard",
            "The bot has not heard the question",
            "You spoke, and the bot reported no speech and no words.",
            "If the bot muted the user, wait for `user_mute_stopped`. "
            "Otherwise give the bot audio input, and voice detection or speech recognition.",
            "pipecat",
        ),
        Explanation(
            "muted",
            "because the bot has muted the user",
            "The bot muted the user, for example during a greeting, until `timeout` was over.",
            "Call `listen()` first, to hear the greeting. Otherwise raise `timeout`, or type the question.",
            "turns",
        ),
        Explanation(
            "no-messages",
            "carries no messages",
            "A telephone call carries only audio.",
            'Speak: `ask(Path("question.wav"))`.',
            "testing-phone-bots",
        ),
        Explanation(
            "no-audio-file",
            "Cannot read the audio file",
            "The file doesn't exist, or may not be read.",
            "Check the path. A relative one starts at the folder in which the program runs.",
        ),
        Explanation(
            "bad-audio-file",
            "Cannot use the audio file",
            "The file isn't audio, is damaged, or is empty.",
            "Convert it: `ffmpeg -i IN -c:a pcm_s16le OUT.wav`. To send a named pipe, use a `CallbackSource`.",
            "audio",
        ),
        Explanation(
            "hidden-calls",
            "the bot reports calls without names",
            "Pipecat hides the functions' names, so `calls=` can't judge them.",
            "Let the bot report them: `function_call_report_level`.",
            "pipecat",
        ),
    ),
}

# The pages that say more, by name: title, and path in the repository.
PAGES: dict[str, tuple[str, str]] = {
    "audio": ("Use a microphone and a speaker", "docs/guides/audio.md"),
    "connecting": ("Connect to a bot", "docs/guides/connecting.md"),
    "no-sound": ("Find out why there is no sound", "docs/guides/no-sound.md"),
    "pipecat": ("Prepare your Pipecat bot", "docs/start/pipecat.md"),
    "processes": ("Use several processes, signals or asyncio", "docs/guides/processes.md"),
    "reconnecting": ("Reconnect after a failure", "docs/guides/reconnecting.md"),
    "testing-phone-bots": ("Test a phone bot without a phone", "docs/guides/testing-phone-bots.md"),
    "turns": ("Turns: ask, listen and interrupt", "docs/guides/turns.md"),
    "webrtc": ("Connect over WebRTC", "docs/guides/webrtc.md"),
}


def explanations_of(text: str) -> list[Explanation]:
    """Return the explanations of the errors that a text reports, in the order of the table."""
    return [each for group in EXPLANATIONS.values() for each in group if each.text in text]


def hint_of(text: str) -> str:
    """Return the line that leads from an error to its explanation, or "" if it has none."""
    words = [each.word for each in explanations_of(text)]
    return f"See: rtvi-sync explain {' '.join(words)}" if words else ""
