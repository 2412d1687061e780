"""The rows of recordings: lines, stretches of audio, and redaction."""

from __future__ import annotations

import json

import pytest

from rtvi_sync.protocol.recording_rows import (
    Redactor,
    Stretches,
    arrivals,
    before,
    decode,
    encode,
    is_secret_name,
    message_row,
    secrets_of,
)

pytestmark = pytest.mark.inside

RATE = 1000  # samples per second, so that a frame of 20 ms has 20
HEAD = {"kind": "head", "format": "rtvi-recording", "version": 1}


def frames_of(*frames: tuple[float, int]) -> list[dict]:
    """Return the stretches of frames of 20 ms, each with its arrival and its place."""
    stretches = Stretches("in", RATE)
    rows = [row for t, at in frames for row in stretches.add(t, 24_000, at, 20)]
    return rows + stretches.end()


def even(count: int, start: float = 0.0) -> list[tuple[float, int]]:
    return [(start + 0.02 * index, 20 * index) for index in range(count)]


# -- lines ------------------------------------------------------------------------------------------------------------


def test_a_row_is_one_line_and_comes_back():
    """A line break in a text, and half of a surrogate pair, change nothing."""
    row = {"kind": "mark", "t": 1.5, "text": "one\ntwo \u2028 \ud800 é"}
    line = encode(row)
    assert line.count(b"\n") == 1
    assert decode(encode(HEAD) + line) == ([HEAD, row], False)


def test_a_cut_line_is_told_and_left_out():
    """A line that was being written when the process was killed is no row."""
    assert decode(encode(HEAD) + b'{"kind":"mar') == ([HEAD], True)
    assert decode(b"") == ([], False)


def test_lines_that_are_no_rows_are_left_out():
    """Damage in the middle hides no other row, and unknown kinds are kept."""
    later = {"kind": "later", "t": 1}
    assert decode(encode(HEAD) + b"\0\0\n[1]\n{}\n" + encode(later)) == ([HEAD, later], False)


AUDIO = {"t": 0.1, "until": 0.98, "kind": "audio", "dir": "in", "rate_hz": 24_000, "at": 0, "n": 24_000, "frames": 50}


UNSOUND: tuple[object, ...] = ("1", None, -1, 1e300, 10**400, [])


@pytest.mark.parametrize(
    "damage",
    [
        *({name: value} for name in ("t", "until", "at", "n", "frames") for value in UNSOUND),
        {"dir": "x"},
        {"dir": ["in"]},
        {"frames": 0},
        {"frames": 24_001},
        {"t": float("nan")},
    ],
)
def test_stretches_that_cannot_be_are_left_out(damage):
    """The reader of a row of audio can count on its numbers."""
    assert decode(encode(HEAD) + encode(AUDIO)) == ([HEAD, AUDIO], False)
    assert decode(encode(HEAD) + f"{json.dumps(AUDIO | damage)}\n".encode()) == ([HEAD], False)


@pytest.mark.parametrize(
    "row",
    [
        {"kind": "bot", "t": 1, "rtvi": 5},
        {"kind": "lost", "t": 1, "seconds": "many"},
        {"kind": "mark", "t": "1"},
        {"kind": "message", "t": 1, "message": json.loads("[" * 200 + "]" * 200)},
    ],
)
def test_rows_whose_values_are_of_another_kind_are_left_out(row):
    """A row is left out if a value that is shown, compared or used in a calculation has the wrong type."""
    assert decode(encode(HEAD) + encode(row)) == ([HEAD], False)


def test_numbers_that_json_does_not_have_are_none():
    """A page with one would stay empty."""
    line = b'{"kind":"message","t":1,"dir":"in","message":{"a":NaN,"b":-Infinity,"c":1e999,"d":1e2}}\n'
    assert decode(line)[0][0]["message"] == {"a": None, "b": None, "c": None, "d": 100.0}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"RIFF....\n", "no line of it is a row"),
        (b'{"kind":"head","format":"har"}\n', "another format"),
        (b'{"kind":"head","format":"rtvi-recording","version":2}\n', "version 2"),
    ],
)
def test_what_is_no_recording_is_refused(data, why):
    """The error names the kind of file that it is instead."""
    with pytest.raises(ValueError, match=why):
        decode(data)


def test_a_message_with_too_many_values_is_not_parsed():
    """A message with too many values would take twenty times its size, and hold up all threads for seconds."""
    text = '{"a":[' + "[]," * 200_000 + "[]]}"
    assert message_row(0.0, "in", text)["skipped"] == f"{len(text)} bytes, over a limit"


@pytest.mark.parametrize("place", [65_530, 65_536 + 2 * 8_192 - 5, 65_536 + 8_192 - 5])
@pytest.mark.parametrize("more", [0, 1_000_000])
def test_no_part_of_a_secret_is_where_a_long_text_is_cut(place, more):
    """Only the start of a long text is searched; a redacted text that gets shorter ends with no part of a secret
    either.
    """
    secret = "sEcReT-0123456789"
    for text in ("x" * place, secret * (place // len(secret)) + "x" * (place % len(secret))):
        written = Redactor({secret}).text(text + secret + "y" * more)
        assert "sEc" not in written
        assert len(written) < 66_000


# -- stretches --------------------------------------------------------------------------------------------------------


def test_even_frames_are_one_stretch_a_second():
    """A second of audio is one row, from which each frame can be told."""
    first, second = frames_of(*even(75))
    assert (first["t"], first["until"], first["at"], first["n"], first["frames"]) == (0.0, 0.98, 0, 1000, 50)
    assert (second["t"], second["at"], second["frames"]) == (1.0, 1000, 25)
    assert arrivals(second)[1] == (1.02, 1020, 1040)
    assert {"kind": "audio", "dir": "in", "rate_hz": 24_000}.items() <= first.items()


def test_a_gap_ends_a_stretch():
    """Silence that was never sent has no row."""
    first, second = frames_of((0.0, 0), (0.02, 20), (0.5, 500))
    assert (first["n"], second["at"], second["t"], second["frames"]) == (40, 500, 0.5, 1)


def test_another_rate_ends_a_stretch():
    """A row has one rate."""
    stretches = Stretches("out", RATE)
    assert stretches.add(0.0, 16_000, 0, 20) == []
    (ended,) = stretches.add(0.02, 8_000, 20, 20)
    assert ended["rate_hz"] == 16_000
    assert stretches.end()[0]["rate_hz"] == 8_000
    assert stretches.end() == []


def test_rows_of_audio_are_small():
    """A minute of frames that arrive within 4 ms of their time takes 12.5 kB at most, and both sides 25 kB."""
    came = [(3600 + t + 0.004 * ((index * 7) % 5) / 5, 10**9 + at) for index, (t, at) in enumerate(even(3000))]
    assert sum(len(encode(row)) for row in frames_of(*came)) < 12_500


@pytest.mark.parametrize("jitter", [0.0, 0.004, 0.009, 0.02, 0.08])
def test_each_frame_is_told_to_10_ms(jitter):
    """Whatever the jitter, no frame of a row is further from its arrival than 10 ms."""
    came = [(t + jitter * ((index * 7) % 5) / 5, at) for index, (t, at) in enumerate(even(200))]
    came.sort()
    rows = frames_of(*((t, 20 * index) for index, (t, _) in enumerate(came)))
    told = [arrival for row in rows for arrival in arrivals(row)]
    assert len(told) == 200
    assert [begin for _, begin, _ in told] == [20 * index for index in range(200)]
    assert all(abs(at - t) <= 0.010 + 1e-6 for (at, _, _), (t, _) in zip(told, came, strict=True))
    assert jitter > 0.004 or len(rows) == 4


def test_a_burst_is_a_stretch_of_its_own():
    """Frames that arrive at once are a stretch of their own, and so are even frames before them."""
    burst = [(0.5 + 0.0001 * index, 500 + 20 * index) for index in range(20)]
    first, second = frames_of(*even(25), *burst)
    assert (first["until"], first["frames"], second["t"], second["frames"]) == (0.5, 26, 0.5001, 19)


def test_what_is_left_of_a_stretch_that_was_interrupted():
    """The row has the heard part of the stretch, and the time of its end."""
    (row,) = frames_of(*even(50))
    assert before(row, 2000) == row
    assert before(row, 0) is None
    left = before(row, 490)
    assert left is not None
    assert (left["n"], left["frames"], left["until"]) == (490, 25, 0.48)


# -- redaction --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["token", "accessToken", "X-Api-Key", "apikey", "API_KEY", "client_secret", "password", "Cookie", "credentials"],
)
def test_names_of_secrets(name):
    """A word for a secret counts as a whole word, in any way of writing names."""
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["tokenizer", "text", "secretary", "key", "author", "detoken"])
def test_names_that_only_look_like_it(name):
    """A part of another word is no name of a secret."""
    assert not is_secret_name(name)


def test_strings_under_such_names_are_masked():
    """At any depth; numbers stay, because tokens are counted, too."""
    data = {"usage": {"prompt_tokens": 12}, "auth": [{"token": "abc", "n": 1}], "secret": {"a": ["x", 2]}}
    masked = {"usage": {"prompt_tokens": 12}, "auth": [{"token": "***", "n": 1}], "secret": {"a": ["***", 2]}}
    assert Redactor().value({"kind": "message", "message": {"data": data}})["message"]["data"] == masked


def test_options_of_a_config_are_masked_by_their_name():
    """A config has the name of an option as a value."""
    options = [{"name": "api_key", "value": "abc"}, {"name": "model", "value": "gpt"}]
    assert [each["value"] for each in Redactor().value(options)] == ["***", "gpt"]


def test_known_secrets_are_masked_wherever_they_are():
    """In texts, in errors, escaped for a URL, and as a name."""
    redactor = Redactor(["s3cret/key"])
    row = {"kind": "end", "error": "403 at ?k=s3cret%2Fkey", "s3cret/key": "the key s3cret/key."}
    assert redactor.row(row) == {"kind": "end", "error": "403 at ?k=***", "***": "the key ***."}


def test_urls_in_texts_lose_login_and_tokens():
    """The rest of the URL says where the bot is."""
    text = "see wss://me:pw@host/ws?room=5&access_token=abc#x and http://host/?page=2"
    assert Redactor().text(text) == "see wss://***@host/ws?room=5&access_token=***#x and http://host/?page=2"


def test_secrets_of_a_client():
    """Short ones are left out: they would be found in every other word."""
    url = "wss://user12:passw0rd@host/ws?token=abcdef&room=5"
    headers = {"Authorization": "Bearer sk-123456", "Cookie": "id=987654321; a=b"}
    data = {"body": {"api_key": "key-123456", "city": "Oslo, Norway"}}
    found = secrets_of(url, headers, data)
    assert {"user12", "passw0rd", "abcdef", "sk-123456", "987654321", "key-123456"} <= found
    assert not {"5", "b", "Oslo, Norway", "Bearer"} & found


def test_long_strings_are_cut_and_say_so():
    """A picture in a message does not fill the disk."""
    text = Redactor().text("a" * 70_000)
    assert len(text) < 66_000
    assert text.endswith("(cut, it has 70000 characters)")


def test_the_function_of_the_application_is_last():
    """The function gets the row as it would be written, and may leave it out."""
    seen = []

    def redact(row):
        seen.append(row["text"])
        return None if "x" in row["text"] else row | {"text": "y"}

    redactor = Redactor(["secret"], redact)
    assert redactor.row({"kind": "mark", "text": "a secret"}) == {"kind": "mark", "text": "y"}
    assert redactor.row({"kind": "mark", "text": "x"}) is None
    assert seen == ["a ***", "x"]


def test_numbers_that_json_lacks_become_null():
    """Python servers send NaN, which no other reader takes."""
    row = Redactor().value(message_row(0.5, "in", '{"type":"metrics","data":[NaN,Infinity,1.5]}'))
    assert json.loads(encode(row))["message"]["data"] == [None, None, 1.5]


@pytest.mark.parametrize("text", ["{", b"\xff", "[" * 5000 + "]" * 5000, '{"data":' + "[" * 200 + "]" * 200 + "}"])
def test_messages_that_cannot_be_shown_safely_are_counted(text):
    """No part of an unparsable message is kept, since it might hold a secret."""
    row = message_row(0.0, "in", text)
    assert row["message"] is None
    assert row["skipped"].startswith(f"{len(text)} bytes")
