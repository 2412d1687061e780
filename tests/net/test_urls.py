"""URLs and headers: their form on the wire, and the parts that may be shown."""

from __future__ import annotations

from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rtvi_sync.errors import InvalidTransportParamsError
from rtvi_sync.net.urls import check_headers, is_private_host, merged_headers, parse_url, printable

pytestmark = pytest.mark.inside


@pytest.mark.parametrize(
    ("text", "wire"),
    [
        ("ws://host", "ws://host"),
        ("WS://Host:80/Path", "ws://host/Path"),
        ("wss://bücher.test/ü?q=ü x", "wss://xn--bcher-kva.test/%C3%BC?q=%C3%BC%20x"),
        ("ws://[::1]:8080/a;b=1?c;d", "ws://[::1]:8080/a;b=1?c;d"),
        ("ws://user:p%40ss@host/", "ws://user:p%40ss@host/"),
    ],
)
def test_urls_are_brought_into_the_form_of_the_wire(text, wire):
    """Names and paths beyond ASCII, blanks and upper case hosts are converted to the form of the wire."""
    parts = parse_url(text, "ws", "wss")
    assert parts is not None
    assert parts.geturl() == wire


_names = st.from_regex(r"[0-9a-z._-]{1,12}|[12]?[0-9]{1,2}(\.[0-9]{1,3}){3}|127\.0\.0\.1", fullmatch=True)
_ports = st.from_regex(r"(:[0-9]{1,5})?", fullmatch=True)
_rests = st.from_regex(r"(/[a-zA-Z0-9._~%;-]{0,4}){0,3}(\?[a-zA-Z0-9._~=&%+-]{0,8})?", fullmatch=True)


@given(st.builds("{}://{}{}{}".format, st.sampled_from(["ws", "wss"]), _names, _ports, _rests))
@example("ws://127.0.0.1:8765/ws-client?events=5&token=a.b_c-d~e")
@example("ws://127.0.0.256/")
@example("ws://1.2.3.04/")
@example("ws://1.2.3/")
@example("ws://h/a/../b/./c")
@example("wss://h:443/")
@example("wss://xn--bcher-kva.test/")
@example("wss://xn--.test/")
def test_a_url_is_what_httpx_makes_of_it(text):
    """A URL that is read without httpx, because it looks plain, is read as httpx would read it."""
    try:
        url = httpx.URL(text)
        url.host  # noqa: B018 - raises if it starts with "xn--" and is no name in this form
        expected = urlsplit(str(url))
        expected.port  # noqa: B018 - raises if it cannot be one
    except (httpx.InvalidURL, ValueError):
        expected = None
    parts = parse_url(text, "ws", "wss")
    assert parts == expected or (parts is None and expected is not None and expected.port == 0)


@pytest.mark.parametrize(
    "text",
    ["", "host", "ws:", "ws://", "ws:///path", "http://host", "ws://host:0", "ws://host:65536", "ws://host:x",
     "ws://ho\nst", "ws://a b", "ws://a%20b", "ws://a|b", "ws://a,b", "ws://[::1", "ws://host/\r\nX: y",
     "ws://host/ws ", "ws://xn--.test", "ws://xn--a.test/ws", "ws://" + "a" * 70000],
)  # fmt: skip
def test_bad_urls_are_none(text):
    """Any text that is not a URL of the requested schemes is refused."""
    assert parse_url(text, "ws", "wss") is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("wss://user:secret@host:1/path?token=secret#secret", "wss://host:1/path"),
        ("http://host/\x1b[31m", "http://host/?[31m"),
        ("http://host/" + "a" * 500, "http://host/" + "a" * 188),
        ("http://[secret", "(not a URL)"),
        ("ws://ada:secret/word@host/", "(not a URL)"),
        ("ws://ada:secret#word@host/", "(not a URL)"),
        ("ws://ada:secret?word@host/", "(not a URL)"),
        ("ws://ada:2024/secret@host:7860/ws?a=b", "ws://...@host:7860/ws"),
        ("ws://ada:2024/sec@ret@host", "ws://...@host"),
        ("ws://ada:se@2024:1/cret@host/", "ws://...@host/"),
        ("ws://ada:2024?secret@host/", "(not a URL)"),
        ("ws://ada:2024#secret@host/", "(not a URL)"),
        ("ws://ada:2024/a?secret@host/", "(not a URL)"),
        ("ws://host:7860/ws?mail=ada@host", "ws://host:7860/ws"),
        ("ada:secret@host/path", "ada:host/path"),
        ("//ada:secret@host/path?secret", "//host/path"),
        ("javascript:secret@alert(1)", "javascript:alert(1)"),
        ("http://host/@me", "http://host/@me"),
        ("https://host:7860/api/@scope/start", "https://host:7860/api/@scope/start"),
        ("https://ada:2024/@secret@host/", "https://...@host/"),
        ("http://host/a/sessions/secret/api/offer", "http://host/a/sessions/.../api/offer"),
        ("http://host/sessions/secret", "http://host/sessions/..."),
        ("ws://host/a/ws-client/secret", "ws://host/a/ws-client/..."),
        ("ws://host/ws/secret/", "ws://host/ws/.../"),
        ("ws://host/ws-client", "ws://host/ws-client"),
        ("ws://host/news/item", "ws://host/news/item"),
    ],
)
def test_what_is_shown_of_a_url_is_not_secret(url, shown):
    """User, password, query, fragment, a session's name and a token are left out; the rest is short and printable."""
    assert printable(url) == shown


@pytest.mark.parametrize(
    "headers",
    [{"X\n": "v"}, {"X:": "v"}, {"": "v"}, {"X Y": "v"}, {5: "v"}, {"X": "secret\r\nEvil: 1"}, {"X": "secret\n"},
     {"X": "secret\0"}, {"X": " secret"}, {"X": "secret "}, {"X": "sécret"}, {"X": 5}, {"X": None}],
)  # fmt: skip
def test_headers_that_could_smuggle_in_others_are_refused(headers):
    """The message names the header and keeps its value to itself."""
    with pytest.raises(InvalidTransportParamsError) as caught:
        check_headers(headers)
    assert "secret" not in str(caught.value)


def test_ordinary_headers_pass():
    """Blanks and tabs inside a value, and an empty value, are fine."""
    check_headers({"Authorization": "Bearer abc", "x-tab": "a\tb", "Empty": "", "X!#$%&'*+.^_`|~": "1"})


def test_headers_of_several_sources():
    """The last one of a name counts, whatever its case."""
    merged = merged_headers({"Authorization": "old", "X-A": "1"}, {"authorization": "new"}, {})
    assert merged == {"authorization": "new", "X-A": "1"}


@pytest.mark.parametrize(
    ("host", "private"),
    [("127.0.0.1", True), ("::1", True), ("10.1.2.3", True), ("192.168.0.9", True), ("fe80::1%eth0", True),
     ("localhost", True), ("bot.localhost", True), ("8.8.8.8", False), ("2001:4860:4860::8888", False),
     ("bot.example", False), ("localhost.example", False), ("notlocalhost", False), ("", False)],
)  # fmt: skip
def test_private_hosts(host, private):
    """Only this machine and private addresses count as private; no name is looked up."""
    assert is_private_host(host) is private
