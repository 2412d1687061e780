"""The page in a real Chromium, opened as a file: its contents, by pointer and keys, and things that it never does."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rtvi_sync import Recording, connect
from rtvi_sync.media import ToneSource
from rtvi_sync.testing import EmbeddedBot, Measurement, Report, Row, RowAudio
from tests.recording.conftest import a_hostile_talk
from tests.support.recordings import HOSTILE, Script, a_talk, an_hour
from tests.support.slowness import GUARD
from tests.support.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.real

REPORT_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) => console.error("policy: " + event.violatedDirective));
"""
#: Elements whose text has too little contrast with its background, by the rule of WCAG (4.5, and 3 of large text).
PALE = """() => {
  const channels = (colour) => (colour.match(/[\\d.]+/g) || []).map(Number);
  const linear = (each) => each / 255 <= 0.03928 ? each / 255 / 12.92 : ((each / 255 + 0.055) / 1.055) ** 2.4;
  const light = (colour) => { const [r, g, b] = colour.map(linear); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = channels(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const texts = [...node.childNodes].filter((child) => child.nodeType === 3 && child.data.trim());
    if (!texts.length || node.closest("svg, script, noscript, :disabled") || !node.checkVisibility()) continue;
    const style = getComputedStyle(node), one = light(channels(style.color)), other = light(behind(node));
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) found.push(`${ratio} ${texts[0].data.slice(0, 40)}`);
  }
  return found;
}"""

Open = Callable[..., "Page"]


@pytest.fixture
def show(chromium: Browser) -> Iterator[Open]:
    """Open pages, which must not complain, request anything but the audio, or be wider than the window."""
    complaints: list[str] = []
    contexts = []

    def open_page(path: Path, width: int = 1400, theme: str = "light") -> Page:
        context = chromium.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=theme,  # type: ignore[arg-type]
            reduced_motion="reduce",
        )
        contexts.append(context)
        context.set_default_timeout(GUARD * 1000)
        context.add_init_script(REPORT_VIOLATIONS)
        page = context.new_page()
        page.on("console", lambda said: complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        allowed = (path.as_uri(), "data:", path.parent.as_uri())
        page.on("request", lambda asked: None if asked.url.startswith(allowed) else complaints.append(asked.url))
        page.goto(path.as_uri())
        page.locator("h1").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture(scope="module")
def talk_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    Recording.load(a_talk(folder).write()).report(folder / "talk.html")
    return folder / "talk.html"


def of(page: Page, selector: str) -> list[str]:
    return page.locator(selector).all_text_contents()


def current(page: Page) -> str | None:
    rows = page.locator("#turns tr[aria-current=true]")
    return rows.first.get_attribute("data-turn") if rows.count() else None


def test_the_conversation(show: Open, talk_page: Path) -> None:
    """The head has the bot and the latencies, the timeline its lanes, and the table the turns."""
    page = show(talk_page)
    assert page.locator("h1").inner_text() == "talk"
    assert "RTVI 2.2.0, pipecat-ai 1.14.0" in page.locator("#head").inner_text()
    lanes = page.locator("#timeline g.lane").evaluate_all("nodes => nodes.map((node) => node.dataset.lane)")
    assert lanes == ["user-audio", "user", "model", "functions", "bot", "bot-audio", "marks"]
    assert page.locator("rect.bar[data-turn='5']").count() == 5
    assert page.locator("#turns tr[data-turn]").count() == 6
    assert page.locator("#turns tr[data-turn='3'] del").inner_text().startswith(" the details")
    assert page.locator("#turns tr[data-turn='5'] td.slowest").count() == 3
    assert of(page, ".tile .big") == ["960 ms, the median", "805 ms, the median", "905 ms, the median"]
    assert "rate limit" in page.locator("ul.findings").inner_text()
    assert "the bot reported “LLM service: rate limit" in page.locator("#turns tr[data-turn='6']").inner_text()
    painted = (
        "canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some((each) => each)"
    )
    assert page.locator("#timeline canvas").evaluate(painted)


def test_by_keys_alone(show: Open, talk_page: Path) -> None:
    """Keys select turns, zoom, move, and open messages and help."""
    page = show(talk_page)
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert current(page) == "2"
    assert "check_availability" in page.locator("tr.steps").inner_text()
    page.keyboard.press("k")
    assert current(page) == "1"
    page.keyboard.press("Enter")
    bars = page.locator("rect.bar")
    bars.first.wait_for(state="attached")  # it is painted with the next frame
    whole = bars.count()
    for key in ("+", "+", "+", "Home"):
        page.keyboard.press(key)
    until(lambda: bars.count() < whole)  # Playwright's own wait evaluates text, which the page forbids
    page.keyboard.press("End")
    page.locator("rect.bar[data-turn='6']").first.wait_for(state="attached")
    page.keyboard.press("?")
    assert "next turn" in page.locator("dialog").inner_text()
    page.keyboard.press("Escape")
    page.keyboard.press("m")
    page.locator("#messages li").first.wait_for()
    messages = page.evaluate("JSON.parse(document.getElementById('data').textContent).recordings[0].messages.length")
    assert page.locator("#messages li").count() == min(200, messages)


def test_by_pointer(show: Open, talk_page: Path) -> None:
    """A bar selects its turn, a row too, a finding shows its turn, and the wheel zooms."""
    page = show(talk_page)
    page.locator("rect.bar.functions[data-turn='5']").click()
    assert current(page) == "5"
    page.locator("#turns tr[data-turn='2']").click()
    assert current(page) == "2"
    page.get_by_role("button", name="Show turn 6").first.click()
    assert current(page) == "6"
    page.locator("#timeline .chart").hover()
    axis = page.locator("#timeline .axis").inner_html()
    page.mouse.wheel(0, -400)
    until(lambda: page.locator("#timeline .axis").inner_html() != axis)
    page.locator("rect.bar").first.hover()
    assert page.locator("#tip").count() == 1


def test_messages_are_found(show: Open, talk_page: Path) -> None:
    """Messages are filtered by type and searched by text; each opens as JSON."""
    page = show(talk_page)
    page.locator("#messages > summary").click()
    page.locator("#messages select").select_option("error")
    assert page.locator("#messages li").count() == 1
    page.locator("#messages li summary").click()
    assert json.loads(page.locator("#messages pre").inner_text())["type"] == "error"
    page.locator("#messages select").select_option("")
    page.locator("#messages input").fill("harbour")
    assert 1 < page.locator("#messages li").count() < 20


def test_the_player(show: Open, talk_page: Path, tmp_path: Path) -> None:
    """The page plays the file beside it, or the audio that it holds; without a file it says so."""
    page = show(talk_page)
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Pause").wait_for()
    until(lambda: page.locator(".tools time").inner_text() != "0.00 s / 34.6 s")
    recording = Recording.load(talk_page.with_suffix(".jsonl"))
    recording.report(tmp_path / "whole.html", embed_audio=True)
    page = show(tmp_path / "whole.html")
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Pause").wait_for()
    (tmp_path / "alone.html").write_text(Recording.load(a_talk(tmp_path, audio=False).write()).report(), "utf-8")
    page = show(tmp_path / "alone.html")
    assert page.get_by_role("button", name="Play").is_disabled()
    assert "no WAV file" in page.locator("#note").inner_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 420])
def test_both_themes_at_both_widths(show: Open, talk_page: Path, width: int, theme: str) -> None:
    """Text has contrast, and nothing but the box of a table is wider than the window."""
    page = show(talk_page, width, theme)
    page.keyboard.press("j")
    page.keyboard.press("m")
    assert page.evaluate(PALE) == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_names_for_a_screen_reader(show: Open, talk_page: Path) -> None:
    """There is one h1, a language, landmarks, names for controls, and a text for the picture."""
    page = show(talk_page)
    assert page.locator("h1").count() == 1
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.get_by_role("main").count() == page.get_by_role("banner").count() == 1
    assert "6 turns" in (page.get_by_role("img").first.get_attribute("aria-label") or "")
    assert page.get_by_role("row").count() == 7
    for name in ("Zoom in", "Zoom out", "Keys", "Play"):
        assert page.get_by_role("button", name=name).count() == 1


@pytest.mark.parametrize("width", [1400, 420])
def test_markup_is_text(show: Open, tmp_path: Path, width: int) -> None:
    """Words, calls, errors and marks that are markup are shown as text, and none of it runs."""
    recording = Recording.load(a_hostile_talk(tmp_path))
    recording.report(tmp_path / "hostile.html")
    page = show(tmp_path / "hostile.html", width)
    page.keyboard.press("j")
    page.keyboard.press("m")
    assert page.title() == "hostile"
    assert page.locator("main img, main iframe, main script").count() == 0
    assert HOSTILE[0] in of(page, "#turns .say")
    shown = page.locator("#turns").inner_text()
    assert "\\u202e" in shown
    assert "\u202e" not in shown


def test_several_recordings(show: Open, tmp_path: Path) -> None:
    """Several have a row each, percentiles over all, and open one at a time."""
    from rtvi_sync.cli import main

    paths = [str(a_talk(tmp_path, name, audio=False).write()) for name in ("one", "two")]
    assert main(["show", *paths, "--html", str(tmp_path / "both.html"), "--baseline", paths[0]]) == 0
    for width in (1400, 420):
        page = show(tmp_path / "both.html", width)
        assert page.locator("h1").inner_text() == "2 recordings"
        assert page.locator("#recordings tbody tr").count() == 2
        page.locator("#recordings").get_by_role("button", name="two").click()
        assert page.locator("section.chosen h2").inner_text() == "two"
        assert "not judged" in page.locator("main").inner_text()


@pytest.mark.parametrize("is_cut", [True, False])
def test_nothing_and_a_part(show: Open, tmp_path: Path, is_cut: bool) -> None:
    """A recording without a turn lists its contents; one that is cut says where."""
    script = a_talk(tmp_path) if is_cut else Script(tmp_path, audio=False)
    recording = Recording.load(script.write(is_cut=is_cut))
    recording.report(tmp_path / "page.html")
    page = show(tmp_path / "page.html")
    assert ("cut here" if is_cut else "There was no turn") in (page.locator("main").text_content() or "")


def test_print(show: Open, talk_page: Path, tmp_path: Path) -> None:
    """On paper there are all turns and the whole time, without controls."""
    page = show(talk_page, theme="dark")
    page.keyboard.press("+")
    page.emulate_media(media="print")
    assert not page.get_by_role("button", name="Play").is_visible()
    assert page.locator("#turns tr[data-turn='6']").is_visible()
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 31, 36)"
    page.pdf(path=tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")


def test_a_telephone_call(show: Open, tmp_path: Path) -> None:
    """A call has no lane, tile or column of data that a telephone lacks; a failed test is the first finding."""
    options: dict[str, Any] = {"transport": "twilio", "mic": False, "speaker": False, "connect_timeout": GUARD}
    with (
        EmbeddedBot() as bot,
        connect(bot.ws_url, **options) as caller,
        caller.record(tmp_path / "call", report=True) as recording,
    ):
        caller.ask(ToneSource(440, 0.5), GUARD)
        recording.mark("The test failed: turn 1: too late")
    page = show(tmp_path / "call.html")
    lanes = page.locator("#timeline g.lane").evaluate_all("nodes => nodes.map((node) => node.dataset.lane)")
    assert lanes == ["user-audio", "user", "bot", "bot-audio", "marks"]
    assert of(page, ".tile h3") == ["Voice to voice", "First audio"]
    assert "First token" not in page.locator("#turns").inner_text()
    assert page.locator("ul.findings li").first.locator("span.tag.bad").inner_text() == "Test failed"
    assert page.locator("path.mark.failed").count() == 2  # in the timeline, and in the legend


def test_a_load_test(show: Open, tmp_path: Path) -> None:
    """A load test has a distribution a measurement, its sessions in time, groups of errors, and a table that sorts."""
    chance = random.Random(1)
    rows = []
    for number in range(60):
        failed = number % 12 == 5
        done = [
            Measurement(kind="answer", name="first audio", began=0.0, seconds=abs(chance.gauss(0.9, 0.2)))
            for _ in range(3)
        ]
        rows.append(
            Row(
                number=number,
                outcome="failed" if failed else "passed",
                error="TimeoutError: <b>no</b> answer" if failed else None,
                kind="not_heard" if failed else None,
                audio=RowAudio(not_taken=2.5 if failed else 0.0),
                began=number / 10,
                seconds=5.0,
                measurements=tuple(done),
            )
        )
    of_run: dict[str, Any] = {
        "date": "2026-11-28T09:00:00Z",
        "url": "wss://bot.example/ws",
        "transport": "twilio",
        "rate": 10.0,
    }
    Report(rows=tuple(rows), seconds=11.0, **of_run).to_html(tmp_path / "load.html")
    for width, theme in ((1400, "dark"), (420, "light")):
        page = show(tmp_path / "load.html", width, theme)
        assert page.locator("h1").inner_text() == "60 sessions, 5 failed"
        assert page.locator("p.facts span").all_inner_texts()[1:5] == [
            "by twilio",
            "wss://bot.example/ws",
            "10 sessions a second at most",
            "2026-11-28 09:00:00 UTC",
        ]
        assert "TimeoutError: <b>no</b> answer" in page.locator("ul.findings").inner_text()
        assert {"p50", "p95", "p99"} == set(", ".join(of(page, ".charts text.p")).split(", "))
        first = page.locator("#sessions tbody tr").first
        assert [first.locator("th, td").nth(index).inner_text() for index in (0, 1, 2, 5)] == [
            "5",
            "failed\nnot heard",
            "TimeoutError: <b>no</b> answer",
            "2.50",
        ]
        error = first.locator("details")
        error.locator("summary").press("Enter")  # all of a long one
        assert error.get_attribute("open") is not None
        assert "5 sessions lost audio" in page.locator("ul.findings").inner_text()
        assert page.locator("#lost-title").locator("xpath=../..").locator("tbody tr").all_inner_texts() == [
            "User's, not taken by the bot or the network\t12.5\t5\t2.5"
        ]
        page.get_by_role("button", name="Session", exact=True).click()
        assert first.locator("th").inner_text() == "0"
        assert page.evaluate(PALE) == []


@pytest.mark.matrix
def test_an_hour(show: Open, tmp_path: Path) -> None:
    """The page of an hour is at most 4 MB, and can be used within 2 s."""
    recording = Recording.load(an_hour(tmp_path))
    recording.report(tmp_path / "hour.html")
    assert (tmp_path / "hour.html").stat().st_size <= 4_000_000
    page = show(tmp_path / "hour.html")
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})  # the page's own time, however busy the machine
    page.reload()
    page.locator("#turns tr[data-turn='1']").wait_for()
    metrics = {each["name"]: each["value"] for each in devtools.send("Performance.getMetrics")["metrics"]}
    assert metrics["TaskDuration"] < 2.0
    page.keyboard.press("j")
    assert current(page) == "1"
