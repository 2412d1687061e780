"""The view under gunicorn, with threads and with processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from rtvi_sync.testing import BotSession, EmbeddedBot, FaultProxy, faults
from tests.support.slowness import GUARD, takes
from tests.support.threads import running
from tests.support.web_server import WebServer

from .server import Browser, Reply, serve

SECRET = "hush-hush-hush"
MARKUP = "<script>alert(1)</script>"


class Bot:
    """A bot that does as it is asked to, behind a line that can be cut."""

    def __init__(self, bot: EmbeddedBot, proxy: FaultProxy) -> None:
        self.bot = bot
        self.proxy = proxy
        self.url = f"{proxy.url(bot.ws_url)}?token={SECRET}"
        self.asked = threading.Semaphore(0)
        self.may_answer = threading.Event()
        bot.handler = self._hear

    def _hear(self, session: BotSession, message: dict[str, Any]) -> bool:
        if message["type"] != "send-text":
            return False
        question = message["data"]["content"]
        self.asked.release()
        if question == "Wait":
            assert self.may_answer.wait(GUARD)
        elif question == "Go away":
            session.close(1011, MARKUP)
        return bool(question == "Say nothing")


@pytest.fixture(scope="module", params=["gthread", "sync"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WebServer, Bot]]:
    """Yield a server of each kind, and its bot."""
    log = tmp_path_factory.mktemp("django") / "gunicorn.log"
    with EmbeddedBot() as real, FaultProxy.before(real.ws_url) as proxy:
        bot = Bot(real, proxy)
        with serve(log, request.param, bot.url) as gunicorn:
            yield gunicorn, bot
            workers = gunicorn.workers()
            assert gunicorn.stop() == 0
            assert not any(process.is_running() for process in workers)
    assert SECRET not in gunicorn.log()
    assert "Traceback" not in gunicorn.log()


@pytest.fixture
def gunicorn(server: tuple[WebServer, Bot]) -> WebServer:
    """Return the server."""
    return server[0]


@pytest.fixture
def bot(server: tuple[WebServer, Bot]) -> Bot:
    """Return the bot."""
    return server[1]


@pytest.fixture
def browser(gunicorn: WebServer, bot: Bot) -> Iterator[Browser]:
    """Yield a browser at the page; afterwards no session is left at the bot."""
    yield Browser(gunicorn.url)
    deadline = time.monotonic() + 5
    while bot.bot.sessions and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert bot.bot.sessions == []


def test_a_question_is_answered_as_json(browser: Browser) -> None:
    """The answer has the bot's words, and their time."""
    reply = browser.ask("What time is it?")
    assert reply.status == 200
    assert reply.json["answer"] == "You said: What time is it?"
    assert 0 < reply.json["seconds"] < 8  # the limit of connecting and answering together


def test_several_at_once_do_not_meet(browser: Browser) -> None:
    """Each request has a session of its own, and its own answer."""
    questions = [f"Number {number}?" for number in range(12)]
    with ThreadPoolExecutor(6) as pool:
        replies = list(pool.map(browser.ask, questions))
    assert [reply.json["answer"] for reply in replies] == [f"You said: {question}" for question in questions]


def test_markup_is_shown_as_text(browser: Browser) -> None:
    """The question and the bot's words are escaped in the page, and in JSON no browser takes them for HTML."""
    page, json = browser.post("/", MARKUP), browser.ask(MARKUP)
    assert page.status == 200
    assert "<script" not in page.text
    assert page.text.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 2
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert MARKUP in json.json["answer"]
    assert json.headers["X-Content-Type-Options"] == "nosniff"


def test_only_the_page_may_ask(browser: Browser) -> None:
    """Without the token, by another name or with another method there is no question."""
    kind = {"Content_Type": "application/x-www-form-urlencoded"}
    assert browser.request("POST", "/ask", "question=Hi", **kind).status == 403
    assert browser.request("POST", "/", "question=Hi", **kind).status == 403
    assert browser.post("/ask", "Hi", Origin="http://elsewhere.test").status == 403
    assert browser.post("/ask", "Hi", Host="elsewhere.test").status == 400
    assert browser.request("GET", "/ask").status == 405


@pytest.mark.parametrize("question", ["", " ", "x" * 2001])
def test_what_is_no_question_is_refused(browser: Browser, question: str) -> None:
    """Nothing, and too much, never reaches the bot."""
    reply = browser.ask(question)
    assert (reply.status, "1 to 2000" in reply.json["error"]) == (400, True)


def test_a_bot_that_comes_back_needs_no_restart(browser: Browser, bot: Bot) -> None:
    """While every connection to it is reset the gateway is bad, afterwards all is well."""
    reset = bot.proxy.inject(faults.Reset())
    assert browser.ask("Hello?").status == 502
    reset.lift()
    assert browser.ask("Hello?").status == 200


def test_a_bot_that_leaves_is_a_bad_gateway(browser: Browser, gunicorn: WebServer) -> None:
    """Only the log, for the operator, has the bot's last words."""
    json, page = browser.ask("Go away"), browser.post("/", "Go away")
    assert (json.status, page.status) == (502, 502)
    assert json.json["error"] == "The bot cannot be reached. Try again later."
    assert json.json["error"] in page.text
    assert "alert(1)" not in page.text
    assert gunicorn.log().count("could not be put to the bot: ") >= 2


def test_a_bot_that_says_nothing_is_a_gateway_timeout(browser: Browser, gunicorn: WebServer) -> None:
    """A bot that says nothing is a gateway time-out after the limit for connecting and answering together."""
    with takes(11, at_least=7.5):
        reply = browser.ask("Say nothing")
        assert reply.status == 504
        assert reply.json["error"] == "The bot did not answer in time. Try again."
        assert "was not answered in time: " in gunicorn.log()


def test_workers_that_are_stopped_answer_first(browser: Browser, gunicorn: WebServer, bot: Bot) -> None:
    """SIGTERM while requests wait: they end as ever, then the workers do and are replaced, and no zombie stays."""
    old = gunicorn.workers()
    bot.may_answer.clear()
    while bot.asked.acquire(blocking=False):
        pass
    with running(lambda: browser.ask("Wait")) as waiting, running(lambda: browser.ask("Say nothing")) as hopeless:
        assert bot.asked.acquire(timeout=GUARD)
        assert bot.asked.acquire(timeout=GUARD)
        for worker in old:
            worker.terminate()
        assert waiting.goes_on(0.1)
        bot.may_answer.set()
        answered, timed_out = waiting.get(), hopeless.get()
    assert isinstance(answered, Reply)
    assert isinstance(timed_out, Reply)
    assert (answered.json["answer"], timed_out.status) == ("You said: Wait", 504)
    gone, alive = psutil.wait_procs(old, timeout=GUARD)
    assert (len(gone), alive) == (2, [])
    assert browser.ask("And now?").status == 200
    assert all(worker.status() != psutil.STATUS_ZOMBIE for worker in gunicorn.workers())


def test_a_bot_that_is_gone_is_a_bad_gateway(browser: Browser, gunicorn: WebServer, bot: Bot) -> None:
    """The user is told nothing of where it is; the log has that, without the token in the address."""
    bot.proxy.refuse()
    try:
        json, page = browser.ask("Hello?"), browser.post("/", "Hello?")
    finally:
        bot.proxy.accept()  # other tests use the same bot
    assert (json.status, page.status) == (502, 502)
    assert json.json["error"] in page.text
    address = urlsplit(bot.url).netloc
    assert address not in json.text + page.text
    assert address in gunicorn.log()
    assert SECRET not in json.text + page.text + gunicorn.log()
