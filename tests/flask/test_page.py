"""The element <rtvi-voice> in a real Chromium, in writing: the sample's page, and a bot that the test speaks for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from rtvi_sync.testing import EmbeddedBot
from tests.support.required import missing
from tests.support.selection import some_of
from tests.support.slowness import GUARD, takes

from .visitor import PageVisitor, button, message, notice_becomes, sample_page, send, shows, state_becomes

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.real

EVIL = [
    "<img src=x onerror=\"document.title='broken in'\">",
    "<script>document.title='broken in'</script>",
    "</script><svg onload=\"document.title='broken in'\">",
    "<a href=\"javascript:document.title='broken in'\">click</a>",
    "{{ 7 * 7 }} &lt;b&gt; \" ' ` ${1} \u2028\u202e \\u003cb\\u003e",
]
HELLO = [("you", "You: Hello"), ("bot", "Bot: You said: Hello")]


@pytest.fixture(scope="module")
def address(shared_bot: EmbeddedBot, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the sample's address."""
    with sample_page(tmp_path_factory.mktemp("sample"), shared_bot) as (address, _):
        yield address


@pytest.fixture
def visitor(chromium: Browser, address: str, bot: EmbeddedBot) -> Iterator[Callable[..., PageVisitor]]:
    """Make users, who must not have seen an error in the end."""
    visitors = []

    def new(**options: object) -> PageVisitor:
        visitors.append(PageVisitor(chromium, address, bot, **options))
        return visitors[-1]

    yield new
    for each in visitors:
        each.context.close()
        assert each.complaints == []
    for session in bot.sessions:
        session.close()
        session.wait_ended()


def test_the_transcript_appears_live(visitor: Callable[..., PageVisitor]) -> None:
    """The words of both sides appear on the page as they are said: each is seen before the next is sent."""
    page, session = visitor().read()
    session.send(message("user-transcription", text="What ti", final=False))
    shows(page, ("you interim", "You: What ti"))
    session.send(message("user-transcription", text="What time is it?", final=True))
    shows(page, ("you", "You: What time is it?"))
    session.send(message("bot-transcription", text="It is noon."))
    lines = [("you", "You: What time is it?"), ("bot", "Bot: It is noon.")]
    shows(page, *lines)
    send(page, "Thanks")
    session.wait_for_message("send-text", where=lambda sent: sent["data"]["content"] == "Thanks")
    lines += [("you", "You: Thanks"), ("bot", "Bot: You said: Thanks")]
    shows(page, *lines)
    page.reload()
    shows(page, *lines)  # the same session: the log is read again
    assert session.ended is None


@pytest.mark.matrix
def test_an_answer_that_no_transcript_has(visitor: Callable[..., PageVisitor]) -> None:
    """Text after the last sentence is in no transcript, or in the next answer's: the page has each answer, whole."""
    page, session = visitor().read()
    for question, told, written in (("Me?", ["You."], "You. And me"), ("Him?", ["And me", "He!"], "He!")):
        session.send(message("user-transcription", text=question, final=True))
        session.send(message("bot-llm-started"))
        for text in told:
            session.send(message("bot-transcription", text=text))
        session.send(message("bot-llm-text", text=written))
        session.send(message("bot-llm-stopped"))
        page.locator("li.bot", has_text=written).wait_for()
    shows(page, ("you", "You: Me?"), ("bot", "Bot: You. And me"), ("you", "You: Him?"), ("bot", "Bot: He!"))


@pytest.mark.parametrize(
    "kind",
    some_of(["user-transcription", "bot-transcription", "bot-output", "error", "send-text"], "bot-output", "error"),
)
def test_markup_is_shown_as_text(visitor: Callable[..., PageVisitor], kind: str) -> None:
    """Markup in any message, of user or bot, is shown as text and not executed."""
    page, session = visitor().read()
    for number, text in enumerate(EVIL):
        if kind == "send-text":
            send(page, text)
            page.locator("li.bot").nth(number).wait_for()  # a bot that is interrupted answers with nothing
        elif kind == "error":
            session.send(message("error", error=text, fatal=False))
            notice_becomes(page, f"The bot reports an error: {text}")
        else:
            session.send(message(kind, text=text, final=True))
    if kind != "error":
        who = "bot" if kind.startswith("bot") else "you"
        lines = page.locator(f"li.{who}")
        lines.nth(len(EVIL) - 1).wait_for()
        told = lines.evaluate_all("items => items.map((item) => item.textContent)")
        assert told == [f"{who.capitalize()}: {text}" for text in EVIL]
    assert page.locator("rtvi-voice li *:not(span), #notice > span *").count() == 0
    assert page.title() == "Talk to a bot"


def test_who_leaves_ends_the_bots_session(visitor: Callable[..., PageVisitor]) -> None:
    """A session ends within 10 s after its page navigates away or its tab is closed; other users keep theirs."""
    (ada, at_ada), (bob, at_bob), (_, at_eve) = (visitor().write() for _ in range(3))
    ada.goto("about:blank")
    bob.close()
    with takes(10.0):
        for session in (at_ada, at_bob):
            assert session.wait_ended(GUARD).initiator == "client"
    assert at_eve.ended is None


def test_two_tabs(visitor: Callable[..., PageVisitor]) -> None:
    """The newest tab of a user has the conversation, all of it; the older one says so, and can take it back."""
    user = visitor()
    page, session = user.write()
    other = user.open()
    assert other.locator("#state").inner_text() == "Not started"  # a tab does not start by itself
    send(other, "Again")
    lines = [*HELLO, ("you", "You: Again"), ("bot", "Bot: You said: Again")]
    shows(other, *lines)
    notice_becomes(page, "The conversation continues in another tab.")
    button(page, "Continue here").press("Enter")
    shows(page, *lines)
    notice_becomes(other, "The conversation continues in another tab.")
    button(page, "End").click()
    notice_becomes(page, "You have ended the conversation.")
    assert session.wait_ended().initiator == "client"


def test_two_elements(visitor: Callable[..., PageVisitor]) -> None:
    """The one that starts later has the conversation, and after a reload too; the other one says where it is."""
    page = visitor().open()
    page.evaluate("document.querySelector('main').append(document.createElement('rtvi-voice'))")
    first, second = page.locator("rtvi-voice").all()
    for element in (first, second):
        element.get_by_label("Write to the bot").fill("Hello")
        element.get_by_label("Write to the bot").press("Enter")
        element.locator("li.bot").first.wait_for()
    said = first.locator("#notice > span")
    said.filter(has_text="The conversation continues elsewhere on this page.").wait_for()
    first.get_by_role("button", name="Continue here").click()
    second.locator("#notice > span").filter(has_text="elsewhere on this page").wait_for()
    page.reload()
    state_becomes(page, "Ready")


def test_a_user_who_writes(visitor: Callable[..., PageVisitor]) -> None:
    """The page does not claim to listen, and offers the microphone."""
    page, _ = visitor().write()
    state_becomes(page, "Ready")
    assert page.get_by_role("status").first.text_content() == "Ready"  # for screen readers
    assert button(page, "Use microphone").get_attribute("aria-pressed") is None
    assert button(page, "Mute").count() == 0


#: Limits of requests are a hundredth as long.
IMPATIENT = """
const timeout = AbortSignal.timeout.bind(AbortSignal);
AbortSignal.timeout = (milliseconds) => timeout(milliseconds / 100);
"""


def test_a_server_that_does_not_answer(visitor: Callable[..., PageVisitor]) -> None:
    """The page waits for a limited time."""
    user = visitor()
    user.context.add_init_script(IMPATIENT)
    page = user.open()
    page.route("**/bot/session", lambda _: None)
    send(page, "Hello")
    notice_becomes(page, "The server cannot be reached. Check your connection, then try again.")
    assert page.get_by_label("Write to the bot").input_value() == "Hello"
    assert button(page, "Try again").is_visible()


#: Each connection is closed at once. `opened` has the times of the attempts, in milliseconds.
CLOSED_AT_ONCE = """
window.opened = [];
const Real = WebSocket;
window.WebSocket = class extends Real {
  constructor(url) {
    super(url);
    opened.push(performance.now());
    this.addEventListener("open", () => this.close());
  }
};
"""


def test_a_server_that_closes_each_connection(visitor: Callable[..., PageVisitor]) -> None:
    """The page waits before each attempt, so that the server is not flooded."""
    user = visitor(bypass_csp=True)  # to wait for a condition
    user.context.add_init_script(CLOSED_AT_ONCE)
    page = user.open()
    send(page, "Hello")
    page.wait_for_function("opened.length >= 4")
    opened = page.evaluate("opened")
    assert min(later - earlier for earlier, later in itertools.pairwise(opened)) > 490


def test_the_focus_stays_on_the_button(visitor: Callable[..., PageVisitor]) -> None:
    """With the keyboard alone: write, end, and start again; after the end the focus is on the button that starts."""
    page = visitor().open()
    focused = "document.activeElement?.shadowRoot?.activeElement?.textContent"
    for expected in ("Conversation", "Start talking"):  # the transcript, which keys scroll, is first
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.shadowRoot.activeElement.matches('#scroll, button')"), expected
    assert page.evaluate(focused) == "Start talking"
    page.keyboard.press("Tab")
    page.keyboard.type("Hello")
    page.keyboard.press("Enter")
    shows(page, *HELLO)
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate(focused) == "End"
    page.keyboard.press("Space")
    state_becomes(page, "Ended")
    assert page.evaluate(focused) == "Start again"


@pytest.mark.parametrize("reason", some_of(["bot", "network"], "bot"))
def test_an_end_that_the_user_has_not_chosen(visitor: Callable[..., PageVisitor], reason: str) -> None:
    """The page says why the conversation has ended; writing starts another one."""
    page, session = visitor().write()
    states = "[...new Set(states)].filter((each) => !['Thinking…', 'Ready', 'Speaking'].includes(each))"
    page.evaluate(
        """() => {
          const state = document.querySelector("rtvi-voice").shadowRoot.querySelector("#state");
          window.states = [];
          new MutationObserver(() => states.push(state.textContent)).observe(state, { childList: true });
        }"""
    )
    if reason == "bot":
        session.close()
        notice_becomes(page, "The bot has ended the conversation.")
    else:
        session.drop()
        notice_becomes(page, "The bot's connection was lost, so the conversation was ended.")
    assert page.evaluate(states) == ["Ended"]  # no other state was shown for a moment
    send(page, "Hello")
    shows(page, *HELLO)


def test_the_last_line_is_visible(visitor: Callable[..., PageVisitor]) -> None:
    """In a small window nothing lies over the last line and the notice, and the page is not wider than the window."""
    page, session = visitor(viewport={"width": 420, "height": 640}).read()
    for number in range(30):
        session.send(message("user-transcription", text=f"Line {number} " + "is long, " * 12, final=True))
    session.send(message("error", error="It is broken. " * 8, fatal=False))
    page.locator("li.you", has_text="Line 29").wait_for()
    page.locator("#notice", has_text="broken").wait_for()
    for selector in ("li:last-child", "#notice > span", "input"):
        assert is_on_top(page, selector), selector
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    assert page.evaluate("document.documentElement.scrollHeight") <= 640
    page.locator("#scroll").evaluate("scroll => { scroll.scrollTop = 0; }")
    page.locator("#scroll").evaluate("scroll => new Promise(requestAnimationFrame)")
    session.send(message("user-transcription", text="One more", final=True))
    page.locator("li.you", has_text="One more").wait_for()
    assert page.locator("#scroll").evaluate("scroll => scroll.scrollTop") == 0  # it is being read


def is_on_top(page: Page, selector: str) -> bool:
    """Whether the last point of an element is in the window, and nothing else is at this point."""
    return bool(
        page.locator(f"rtvi-voice {selector}").evaluate(
            """element => {
              const { left, bottom } = element.getBoundingClientRect();
              const found = element.getRootNode().elementFromPoint(left + 20, bottom - 3);
              return found !== null && (element === found || element.contains(found));
            }"""
        )
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", some_of([1400, 420], 420))
def test_accessibility(visitor: Callable[..., PageVisitor], scheme: str, width: int) -> None:
    """Axe has no finding: before a conversation, in it, with an answer that was interrupted, and after it."""
    page = visitor(color_scheme=scheme, viewport={"width": width, "height": 800}, reduced_motion="reduce").open()
    assert findings(page) == []
    send(page, "Hello")
    page.locator("li.bot").wait_for()
    state_becomes(page, "Speaking")
    send(page, "Thanks")
    page.locator(".unheard").wait_for()
    assert findings(page) == []
    button(page, "End").click()
    state_becomes(page, "Ended")
    assert findings(page) == []


def findings(page: Page) -> list[str]:
    """Return the faults that axe finds on a page."""
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ModuleNotFoundError:
        missing("axe-playwright-python is not installed: run `python3 run.py test --real`")
    results = Axe().run(page).response["violations"]
    return [f"{each['id']}: {node['html']} {node['failureSummary']}" for each in results for node in each["nodes"]]
