"""One meaning of a bot's URL: in every sample and command, in the load tools, and in a client of one's own."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import RTVIClient, cli
from rtvi_sync.media import NullSink
from rtvi_sync.media.convert import encode_mulaw
from rtvi_sync.testing import EmbeddedBot, MeasuredClient, run_many
from tests.phone.caller import SILENCE, Caller, bridge_to, talk_until
from tests.support import part_probes
from tests.support.http_server import Answer, ScriptedServer, scripted_server
from tests.support.wavs import silence, tone, write_wav
from tests.support.webrtc import SESSION, FarLoop, far_loop, ready_answers, rtc_bot  # noqa: F401 - one is a fixture

ROOT = Path(__file__).parents[1]
START, CONNECT = "/start", "/connect"

# The requests, by the form of the URL: {ws} is the bot's WebSocket, {http} a server with both endpoints, {old} one that
# has only /connect.
FORMS = {
    "{ws}": [],
    "{http}": [START],
    "{http}/": [START],
    "{http}?key=1": ["/start?key=1"],
    "{http}/api/start": ["/api/start"],
    "{http}/api/connect": ["/api/connect"],
    "{http}/bots/7?key=1": ["/bots/7?key=1"],
    "{old}": [START, CONNECT],
}


def command(*arguments: str) -> Callable[[str], object]:
    """Return a command of `rtvi-sync`; the URL is last."""
    return lambda url: cli.main([*arguments, url])


def sample(name: str, *arguments: str) -> Callable[[str], object]:
    """Return a sample, as its command line starts it."""

    def run(url: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [name, "--url", url, *arguments])
            __import__(f"samples.{name}", fromlist=["main"]).main()

    return run


def own_client(url: str) -> None:
    with RTVIClient.for_url(url, enable_mic=False, speaker=NullSink(), connect_timeout=15):
        pass


def measured_client(url: str) -> None:
    with MeasuredClient.for_url(url):
        pass


def many_sessions(url: str) -> None:
    assert run_many(lambda _client: None, 1, url).rows[0].error is None


def celery_task(url: str) -> None:
    from samples.celery_task.tasks import ask

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RTVI_URL", url)
        assert ask("Hello") == "You said: Hello"


def django_app(url: str) -> None:
    from samples.django_app.assistant.bot import ask

    assert ask("Hello", url, 15).text == "You said: Hello"


def flask_app(url: str) -> None:
    from samples.flask_app.app import create_app

    app = create_app(url)
    page = app.test_client()
    page.get("/")
    assert page.post("/bot/session", json={}, headers={"Sec-Fetch-Site": "same-origin"}).status_code == 201
    state: dict[str, str] = {}
    while state.get("state") != "ready":
        state = page.get("/bot/session", headers={"Sec-Fetch-Site": "same-origin"}).json or {}
        assert state.get("state") not in ("error", "disconnected"), state
    app.blueprints["rtvi"].close()


def notebook(url: str) -> None:
    cells = json.loads((ROOT / "samples/notebook/conversation.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RTVI_URL", url)
        for cell in cells[1:3]:
            exec("".join(cell["source"]), names)
    names["client"].connect()
    names["client"].close()


def phone_bridge(url: str) -> None:
    with bridge_to(url) as number, Caller(number) as caller:
        caller.say(20 * (encode_mulaw(tone(0.3, 8_000)) + SILENCE * 8_000))  # the bot hears it once it is ready
        talk_until(lambda: caller.heard, caller)


PROGRAMS: dict[str, Callable[[str], object]] = {
    "demo": command("demo", "--out", "out.wav", "--url"),
    "talk": command("talk", "--mic", "none", "--speaker", "none"),
    "ask_text": sample("ask_text", "Hello"),
    "manual_events": sample("manual_events"),
    "ask_wav": sample("ask_wav", "question.wav", "answer.wav"),
    "barge_in": sample("barge_in"),
    "voice_helper": sample("voice_helper"),
    "kiosk": sample("kiosk", "--seconds", "0.1"),
    "celery_task": celery_task,
    "django_app": django_app,
    "flask_app": flask_app,
    "notebook": notebook,
    "phone_bridge": phone_bridge,
    "for_url()": own_client,
    "MeasuredClient and RTVIUser": measured_client,
    "run_many()": many_sessions,
}
OLD_BOT = {"version": "0.3.0", "config": [{"service": "tts", "options": [{"name": "voice", "value": "bass"}]}]}


@pytest.fixture(autouse=True)
def concurrency(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Leave out conversations that take a while: the URL has had its effect before them."""
    monkeypatch.chdir(tmp_path)
    write_wav(tmp_path / "question.wav", [silence(0.1), tone(0.1), silence(0.1)])
    part_probes.replace_conversation(monkeypatch, "demo", lambda *_args, **_options: None)
    part_probes.replace_conversation(monkeypatch, "talk", lambda _talk, connect: connect())
    monkeypatch.setattr(sys, "stdin", None)  # pytest's own is no file


@contextlib.contextmanager
def places(**options: Any) -> Iterator[tuple[EmbeddedBot, ScriptedServer, ScriptedServer]]:
    """Yield a bot, a server with both endpoints, and one that has only /connect."""
    with EmbeddedBot(**options) as bot, scripted_server() as server, scripted_server() as old:
        bundle = Answer({"ws_url": bot.ws_url})
        server.answers.update(dict.fromkeys([START, CONNECT, "/api/start", "/api/connect", "/bots/7"], bundle))
        old.answers[CONNECT] = bundle
        yield bot, server, old


def test_each_sample_is_tried() -> None:
    """Each sample is tried, except those that bring a transport or a bot, and those for pytest and Locust."""
    others = {"line_transport", "video_transport", "video_call", "local_bot", "load_test", "bot_test", "phone_test"}
    samples = {
        path.stem for path in (ROOT / "samples").iterdir() if path.suffix == ".py" or (path / "__main__.py").exists()
    }
    assert samples - {*PROGRAMS} == others


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_url_means_the_same_everywhere(name: str, form: str) -> None:
    """Each program asks for the bot where the form of the URL says, in that order and nowhere else."""
    with places(**(OLD_BOT if name == "voice_helper" else {})) as (bot, server, old):
        PROGRAMS[name](form.format(ws=bot.ws_url, http=server.url, old=old.url))
        bot.wait_for_session()
        asked = [*server.requests, *old.requests]
    assert [request.path for request in asked] == FORMS[form]
    for request in asked:
        if request.path.partition("?")[0].endswith(START):
            assert request.body == {"transport": "websocket"}
        else:
            assert "rtvi_client_version" in request.body


@pytest.mark.parametrize("name", ["demo", "talk", "for_url()", "MeasuredClient and RTVIUser", "run_many()"])
def test_a_url_of_a_bot_for_webrtc(name: str, far_loop: FarLoop) -> None:  # noqa: F811 - the fixture
    """A program that takes any transport reaches a bot that has no other."""
    with rtc_bot(far_loop, ready_answers) as bot:
        PROGRAMS[name](bot.url)
        offers = [request for request in bot.server.requests if request.path == f"/sessions/{SESSION}/api/offer"]  # type: ignore[attr-defined]
    assert len(offers) == len(bot.calls) == 1
