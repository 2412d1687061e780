"""The element <rtvi-voice> in a real Chromium, by voice: the microphone plays a file, and the page's audio is
recorded."""

from __future__ import annotations

import contextlib
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import psutil
import pytest

from rtvi_sync.testing import EmbeddedBot
from tests.support.chromium import MICROPHONE, SPEAKS
from tests.support.slowness import GUARD, Stopwatch, takes
from tests.support.waiting import until
from tests.support.wavs import silence, write_wav

from .visitor import (
    ROOT,
    PageVisitor,
    button,
    message,
    notice_becomes,
    sample_page,
    send,
    shows,
    state_becomes,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = pytest.mark.real
np = pytest.importorskip("numpy")

FILE_RATE = 24_000
#: Of all audio that is compared.
RATE = 48_000
#: Seconds of silence before the user speaks, of speech, and of silence before the user speaks again.
BEFORE, SPEECH, PAUSE = 1.0, 1.5, 4.0
LONG = "It is a long answer, and it goes on " + "and on " * 40
ALLOWED = {"permissions": ["microphone"]}


def speech(seconds: float = SPEECH) -> bytes:
    """Return the start of a few spoken sentences."""
    with wave.open(str(ROOT / "rtvi_sync" / "cli" / "speech.wav")) as said:
        assert said.getframerate() == FILE_RATE
        return said.readframes(round(seconds * FILE_RATE))


@pytest.fixture(scope="module")
def talker(launch_chromium: Callable[..., Browser], tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """Return a browser whose user speaks twice, with a pause in which a long answer starts."""
    parts = [silence(BEFORE, FILE_RATE), speech(), silence(PAUSE, FILE_RATE), speech(), silence(60, FILE_RATE)]
    path = write_wav(tmp_path_factory.mktemp("microphone") / "twice.wav", parts, FILE_RATE)
    return launch_chromium(MICROPHONE, SPEAKS.format(path))


@pytest.fixture(scope="module")
def quiet(launch_chromium: Callable[..., Browser], tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """Return a browser whose user does not speak."""
    path = write_wav(tmp_path_factory.mktemp("microphone") / "quiet.wav", [silence(1.0)])
    return launch_chromium(MICROPHONE, SPEAKS.format(path))


@attrs.define
class Site:
    """The sample, its process, and the bot behind it. `join()` makes users, who must not have seen an error."""

    bot: EmbeddedBot
    process: psutil.Popen
    address: str
    visitors: list[PageVisitor] = attrs.Factory(list)

    def join(self, browser: Browser, **options: Any) -> PageVisitor:
        self.visitors.append(PageVisitor(browser, self.address, self.bot, **options))
        return self.visitors[-1]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Start the sample with a bot of these options."""
    with contextlib.ExitStack() as stack:
        sites: list[Site] = []

        def start(**options: Any) -> Site:
            bot = stack.enter_context(EmbeddedBot(**options))
            address, process = stack.enter_context(sample_page(tmp_path, bot))
            sites.append(Site(bot, process, address))
            return sites[-1]

        yield start
        visitors = [visitor for site in sites for visitor in site.visitors]
        for visitor in visitors:
            visitor.context.close()
    assert [each for visitor in visitors for each in visitor.complaints] == []


def heard(page: Page) -> Any:
    """Return the audio that the page has played."""
    return at_rate(np.array(page.evaluate("heard.flat()"), float), page.evaluate("rate"))


def at_rate(samples: Any, sample_rate_hz: int) -> Any:
    """Return audio at `RATE`."""
    at = np.arange(0, len(samples), sample_rate_hz / RATE)
    return np.interp(at, np.arange(len(samples)), samples)


def of_pcm(pcm: bytes, sample_rate_hz: int) -> Any:
    """Return audio at `RATE`."""
    return at_rate(np.frombuffer(pcm, "<i2").astype(float), sample_rate_hz)


def similarity(whole: Any, part: Any) -> float:
    """Return how much of `part` is in `whole`, where most of it is: 1.0 is all, at any volume."""
    size = len(whole) + len(part)
    product = np.fft.irfft(np.fft.rfft(whole, size) * np.conj(np.fft.rfft(part, size)), size)[: len(whole)]
    begin = int(product.argmax())
    same = whole[begin : begin + len(part)]
    norm = np.linalg.norm(same) * np.linalg.norm(part)
    return float(product[begin] / norm) if norm else 0.0


def loudness(samples: Any, second: float, seconds: float) -> float:
    """Return the RMS of a part."""
    part = samples[round(second * RATE) : round((second + seconds) * RATE)]
    return float(np.sqrt(np.mean(part**2)))


def test_a_question_by_voice(talker: Browser, serve: Callable[..., Site]) -> None:
    """The bot hears the microphone's audio, and the page plays the bot's audio, sample by sample.

    On a machine that is too busy for real time, frames are late and silence fills their place. So it may hear and play
    as much less as the machine is slower.
    """
    site = serve(transcripts=["What time is it?"], replies=["It is noon, time to eat."])
    user = site.join(talker, **ALLOWED, bypass_csp=True)
    user.record()
    with Stopwatch() as watch:
        page, session = user.talk()
        shows(page, ("you", "You: What time is it?"), ("bot", "Bot: It is noon, time to eat."))
        state_becomes(page, "Speaking")
        state_becomes(page, "Listening")
    told = of_pcm(session.audio, 16_000)  # of which the bot's answer is an echo
    asked = of_pcm(speech(), FILE_RATE)
    assert similarity(told, asked) > 0.95 / watch.slower
    played = heard(page)
    begin = int(np.argmax(np.abs(played) > 300))
    pieces = [played[begin + at * RATE // 2 :][: RATE // 2] for at in range(2)]
    assert min(similarity(told, piece) for piece in pieces) > 0.9 / watch.slower


def test_barge_in(talker: Browser, serve: Callable[..., Site]) -> None:
    """A user who speaks while the bot does empties the page's player at once; unheard words are marked."""
    site = serve(transcripts=["Tell me all.", "Stop!"], replies=[LONG, "Fine."], echo=False)
    user = site.join(talker, **ALLOWED, bypass_csp=True)
    user.record()
    page, _ = user.talk()
    page.wait_for_function("events.some(({ event }) => event === 'turnEnded')")
    page.locator("li.bot", has_text="Fine.").wait_for()
    state_becomes(page, "Listening")
    played = heard(page)
    first = page.evaluate("events.find(({ event }) => event === 'botStartedSpeaking').at")
    cleared = page.evaluate("events.findLast(({ event }) => event === 'voiceClear').at")
    assert cleared - first > 1.0
    assert loudness(played, cleared - 0.5, 0.4) > 300
    assert loudness(played, cleared + 0.15, 1.0) == 0
    unheard = page.locator("li.bot").first.locator(".unheard").inner_text()
    assert LONG.strip().endswith(unheard.strip())
    assert 0 < len(unheard) < len(LONG) - 5
    assert "(not heard:)" in (page.locator("li.bot").first.text_content() or "")


def test_it_goes_on_after_a_reload(quiet: Browser, serve: Callable[..., Site]) -> None:
    """A page that is loaded again goes on talking by itself, in the same session, with the transcript."""
    site = serve()
    page, session = site.join(quiet, **ALLOWED).talk()
    send(page, "Hello")
    lines = [("you", "You: Hello"), ("bot", "Bot: You said: Hello")]
    shows(page, *lines)
    for _ in range(3):
        page.reload()
        shows(page, *lines)
        state_becomes(page, "Listening")
        assert button(page, "Mute").get_attribute("aria-pressed") == "false"
        received = len(session.audio)
        until(lambda received=received: len(session.audio) > received + 3200)  # type: ignore[misc]
    assert session.ended is None


def test_a_lost_network(quiet: Browser, serve: Callable[..., Site]) -> None:
    """Without network the page says so; once it is back, the conversation goes on, and missed events arrive too.

    A text is in the field again until the server confirms it.
    """
    site = serve()
    user = site.join(quiet, **ALLOWED)
    page, session = user.talk()
    user.context.set_offline(True)
    send(page, "Are you there?")
    state_becomes(page, "Reconnecting…")
    assert page.get_by_label("Write to the bot").input_value() == "Are you there?"
    notice_becomes(page, "The connection was lost. Reconnecting…")
    session.send(message("user-transcription", text="Said meanwhile.", final=True))
    user.context.set_offline(False)
    with takes(5.0):
        state_becomes(page, "Listening")
    notice_becomes(page, "")
    lines = [("you", "You: Said meanwhile."), ("you", "You: Are you there?"), ("bot", "Bot: You said: Are you there?")]
    shows(page, *lines)
    assert page.get_by_label("Write to the bot").input_value() == ""
    assert session.ended is None
    forget_network_errors(user)


def forget_network_errors(user: PageVisitor) -> None:
    """Expect, at the end of a test, that the browser itself has reported requests that have failed."""
    user.context.close()  # first, because it may report them late
    reported = ("WebSocket", "Failed to load resource")
    user.complaints[:] = [each for each in user.complaints if not each.startswith(reported)]


def test_a_worker_that_is_restarted(quiet: Browser, serve: Callable[..., Site]) -> None:
    """The session is gone with its worker: the page says so, and the button starts another one."""
    site = serve()
    user = site.join(quiet, **ALLOWED)
    page, _ = user.talk()
    (worker,) = site.process.children()
    worker.kill()
    notice_becomes(page, "The conversation is over, because the connection was lost for too long.")
    button(page, "Start again").click()
    state_becomes(page, "Listening")
    site.bot.wait_for_session(GUARD)
    forget_network_errors(user)


def test_without_permission(quiet: Browser, serve: Callable[..., Site]) -> None:
    """The page says how to allow the microphone, and does not start a session; writing still works."""
    site = serve()
    user = site.join(quiet)
    page = user.open()
    button(page, "Start talking").click()
    notice_becomes(
        page,
        "The microphone is blocked. Allow it in the browser's address bar, then press “Try again”, or write.",
    )
    assert site.bot.sessions == []
    send(page, "Hello")
    shows(page, ("you", "You: Hello"), ("bot", "Bot: You said: Hello"))
    user.context.grant_permissions(["microphone"])
    session = site.bot.wait_for_session()
    received = len(session.audio)
    button(page, "Use microphone").click()
    until(lambda: any(session.audio[received:]) or len(session.audio) > received + 32000)
    assert button(page, "Mute").get_attribute("aria-pressed") == "false"


def test_without_a_microphone(chromium: Browser, serve: Callable[..., Site]) -> None:
    """A computer without a microphone is no obstacle to writing."""
    site = serve()
    page = site.join(chromium, **ALLOWED).open()
    button(page, "Start talking").click()
    notice_becomes(page, "No microphone was found. Connect one, then press “Try again”, or write.")
    send(page, "Hello")
    shows(page, ("you", "You: Hello"), ("bot", "Bot: You said: Hello"))


def test_a_muted_microphone(talker: Browser, serve: Callable[..., Site]) -> None:
    """The bot hears silence, and none of the user's words."""
    site = serve()
    page = site.join(talker, **ALLOWED).open()
    # Before the microphone is there: a slow machine might press the button after the user's first words.
    page.locator("rtvi-voice").evaluate("element => { element.start(); element.muted = true; }")
    state_becomes(page, "Ready")
    assert button(page, "Mute").get_attribute("aria-pressed") == "true"
    session = site.bot.wait_for_session()
    until(lambda: len(session.audio) > 2 * 16000 * 4)
    assert not any(session.audio)
    assert page.locator("rtvi-voice li").count() == 0
    button(page, "Mute").click()
    state_becomes(page, "Listening")


def test_a_microphone_that_is_wanted_while_the_page_connects(quiet: Browser, serve: Callable[..., Site]) -> None:
    """The page asks for it as soon as it is connected."""
    site = serve()
    page = site.join(quiet, **ALLOWED).open()
    held: list[Route] = []
    page.route("**/bot/session", lambda route: held.append(route), times=1)
    page.locator("rtvi-voice").evaluate("element => { element.start({ muted: true }); }")
    state_becomes(page, "Connecting…")
    button(page, "Use microphone").click()
    until(lambda: page.evaluate("true") and held)  # the request arrives while Playwright is called
    held[0].continue_()
    state_becomes(page, "Listening")
    session = site.bot.wait_for_session(GUARD)
    until(lambda: len(session.audio) > 3200)


#: The browser gives the microphone when `give()` is called. `tracks` are its tracks.
SLOW_TO_ALLOW = """
const media = navigator.mediaDevices, open = media.getUserMedia.bind(media);
media.getUserMedia = async (wanted) => {
  const stream = await open(wanted);
  window.tracks = stream.getTracks();
  await new Promise((resolve) => { window.give = resolve; });
  return stream;
};
"""


@pytest.mark.parametrize("is_connected", [False, True])
def test_a_microphone_that_is_given_after_the_end(
    quiet: Browser, serve: Callable[..., Site], is_connected: bool
) -> None:
    """A microphone for which the user was still asked at the end of the conversation is released."""
    site = serve()
    user = site.join(quiet, **ALLOWED, bypass_csp=True)
    user.context.add_init_script(SLOW_TO_ALLOW)
    page = user.open()
    if is_connected:
        page.locator("rtvi-voice").evaluate("element => element.start({ muted: true })")
        state_becomes(page, "Ready")
        button(page, "Use microphone").click()
    else:
        button(page, "Start talking").click()
    page.wait_for_function("window.give !== undefined")
    page.evaluate("document.querySelector('rtvi-voice').stop(); give();")
    page.wait_for_function("tracks.every((track) => track.readyState === 'ended')")
    state_becomes(page, "Ended")
    forget_network_errors(user)


def test_a_bot_that_is_not_there(quiet: Browser, serve: Callable[..., Site]) -> None:
    """The page says that the bot cannot be reached, and its button tries again."""
    site = serve()
    page = site.join(quiet, **ALLOWED).open()
    site.bot.stop()
    button(page, "Start talking").click()
    notice_becomes(page, "The bot cannot be reached. Try again in a minute.")
    assert button(page, "Try again").is_visible()


#: A browser that blocks cookies blocks the storage of a tab, too.
NO_STORAGE = """
Object.defineProperty(window, "sessionStorage", { get() { throw new DOMException("", "SecurityError"); } });
"""


def test_a_browser_that_blocks_cookies(quiet: Browser, serve: Callable[..., Site]) -> None:
    """A page without a cookie says so, and its button tries again."""
    site = serve()
    user = site.join(quiet)
    user.context.add_init_script(NO_STORAGE)
    page = user.open()
    page.route("**/bot/session", lambda route: route.fulfill(status=428, json={"error": "no_cookie"}))
    page.locator("rtvi-voice").evaluate("element => element.start({ muted: true })")
    notice_becomes(
        page, "The browser blocks the cookie that this page needs. Allow cookies for this site, then try again."
    )
    assert button(page, "Try again").is_visible()
    forget_network_errors(user)


#: The page's WebSocket asks for a route that the server does not have.
NO_ROUTE = """
const Real = WebSocket;
window.WebSocket = class extends Real { constructor(url) { super(url + "/nothing"); } };
"""


@pytest.mark.parametrize(
    ("error", "notice"),
    [
        ("too_many_pages", "This conversation is open in too many tabs. Close some of them, then try again."),
        (
            "not_websocket",
            "The web server does not accept connections for the voice. Its administrator can change that.",
        ),
        (None, "The web server does not accept connections for the voice. Its administrator can change that."),
    ],
)
def test_a_connection_that_is_refused(
    quiet: Browser, serve: Callable[..., Site], error: str | None, notice: str
) -> None:
    """A page whose connection is refused says why, as the session tells it; a server that does not know is at fault."""
    site = serve()
    user = site.join(quiet)
    user.context.add_init_script(NO_ROUTE)
    page = user.open()
    if error is not None:
        answer = {"state": "ready", "refused": error}
        page.route("**/bot/session", lambda route: route.fulfill(json=answer))
    page.locator("rtvi-voice").evaluate("element => element.start({ muted: true })")
    notice_becomes(page, notice)
    assert button(page, "Try again").is_visible()
    forget_network_errors(user)


RESAMPLE = """async ([from, to, hertz]) => {
  const { Resampler } = await import("/bot/rtvi-voice-worklet.js");
  const resampler = new Resampler(from, to);
  const output = [];
  for (let at = 0, size = 128; at < from; at += size, size = 1 + (size * 7) % 480) {
    const sample = (_, index) => Math.sin((2 * Math.PI * hertz * (at + index)) / from);
    output.push(...resampler.push(Float32Array.from({ length: size }, sample)));
  }
  return output;
}"""


def test_resampling(quiet: Browser, serve: Callable[..., Site]) -> None:
    """A tone keeps pitch and level in blocks of any size; tones too high for the lower rate are filtered out."""
    site = serve()
    page = site.join(quiet).open()
    for source, target in ((48_000, 16_000), (44_100, 16_000), (24_000, 48_000), (16_000, 44_100)):
        tone = np.array(page.evaluate(RESAMPLE, [source, target, 1000]))
        assert len(tone) == pytest.approx(target, rel=0.02)
        tone = tone[500:-500]
        turns = 2 * np.pi * 1000 * np.arange(len(tone)) / target
        basis = np.stack([np.sin(turns), np.cos(turns)], axis=1)
        fit, *_ = np.linalg.lstsq(basis, tone, rcond=None)
        assert np.hypot(*fit) == pytest.approx(1.0, abs=0.01)
        assert np.abs(tone - basis @ fit).max() < 0.001  # 60 dB below
        if source > target:
            assert np.abs(np.array(page.evaluate(RESAMPLE, [source, target, 9000]))[500:]).max() < 0.001


@pytest.mark.parametrize(
    ("text", "spoken", "heard_part"),
    [
        ("One, two. Three!", "One two", "One, two."),
        ("One, two. Three!", "one, two. three", "One, two. Three!"),
        ("**One** two", "One", "**One**"),
        ("One", "", ""),
        ("", "", ""),
        ("\U0001f600 Süß! Ja", "Süß", "\U0001f600 Süß!"),
        ("Three", "Four five six", "Three"),
    ],
)
def test_what_was_heard(quiet: Browser, serve: Callable[..., Site], text: str, spoken: str, heard_part: str) -> None:
    """The heard part of a text is found by its letters and digits, even if spaces and punctuation differ."""
    site = serve()
    page = site.join(quiet).open()
    script = """async ([text, heard]) => {
      const { spokenLength } = await import("/bot/rtvi-voice.js");
      return text.slice(0, spokenLength(text, heard));
    }"""
    assert page.evaluate(script, [text, spoken]) == heard_part
