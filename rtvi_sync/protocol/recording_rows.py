"""The rows of a recording: their kinds, the joining of audio frames, and redaction. Pure.

A recording is a file of JSON lines, one row each. A row is a dict with the key ``kind``:

| kind | keys |
|---|---|
| head | format, version, wall, library, session, url |
| bot | t, rtvi, about, capabilities, messages |
| wav | t, file, rate_hz |
| message | t, dir, message |
| audio | t, until, dir, rate_hz, at, n, frames |
| interruption | t, dropped |
| state | t, state, error |
| mark | t, text |
| transcript | t, ended, text |
| lost | t, side, seconds, rows, why |
| end | t, code, initiator, error |

``t`` is in seconds since the start of the recording. ``at``, ``n`` and ``dropped`` are samples of the WAV file.
``messages`` is False if the transport carried none. Then the recording's messages are the ones detected by ear, and a
``transcript`` has the bot's words in the turn that ended at ``ended``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from ..errors import ProtocolError
from . import envelope

Row: TypeAlias = dict[str, Any]

FORMAT: Final = "rtvi-recording"
VERSION: Final = 1

#: The first words of the mark of a failed test.
TEST_FAILED: Final = "The test failed: "

#: The replacement of a secret.
MASK: Final = "***"

# Characters of a string that are kept.
_MAX_STRING = 65_536
# Characters behind them that are searched, so that no secret is cut in two. Searching all characters would delay the
# session, because a search in megabytes lets no other thread run.
_MARGIN = 8_192
# A shorter text does not count as a secret, because it would be found in every other word.
_SHORTEST_SECRET = 6
# Seconds of audio in a stretch.
_STRETCH = 1.0
# Seconds by which the arrival of a frame may differ from the even line of its stretch.
_UNEVEN = 0.010
_DIGITS = 6  # of a second: microseconds
# No recording has this many seconds or samples.
_LARGEST = 2**40
# The keys whose values are used as texts, by kind. A row may lack them, unless it is a row of audio.
_TEXTS = {"head": ("wall", "library", "url"), "bot": ("rtvi",), "transcript": ("text",)}
_COUNTS = ("at", "n", "frames")


# -- reading and writing ----------------------------------------------------------------------------------------------


def encode(row: Row) -> bytes:
    """Return the line of a row."""
    text = json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        return f"{text}\n".encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which a bot may send
        return f"{json.dumps(row, separators=(',', ':'))}\n".encode()


def decode(data: bytes) -> tuple[list[Row], bool]:
    """Return the rows of a file, in its order, and whether its last line is cut.

    The file is untrusted. Lines that are not rows are left out, and so are rows whose times, counts or texts have a
    wrong type.

    Raises:
        ValueError: It is not a recording, or one of a later version.
    """
    lines = data.split(b"\n")
    is_cut = bool(lines.pop())
    rows: list[Row] = []
    for line in lines:
        try:
            row = loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and _is_sound(row):
            rows.append(row)
    if not rows and any(lines):
        raise ValueError("it is no recording: no line of it is a row")
    head = rows[0] if rows and rows[0]["kind"] == "head" else {}
    version = head.get("version", VERSION)
    if head.get("format", FORMAT) != FORMAT:
        raise ValueError("it is no recording: its head names another format")
    if not isinstance(version, int) or version > VERSION:
        raise ValueError(f"it has version {version!r} of the format, and this package reads up to {VERSION}: update it")
    return rows, is_cut


def loads(text: str | bytes) -> Any:
    """Parse a JSON text, with None for numbers that JSON does not have, because browsers cannot read them in a page.

    Raises:
        ValueError, RecursionError: It is not JSON.
    """
    return json.loads(text, parse_constant=lambda _: None, parse_float=_finite)


def _finite(number: str) -> float | None:
    value = float(number)
    return value if math.isfinite(value) else None  # 1e999 is valid JSON


def _is_sound(row: Row) -> bool:
    kind, t = row.get("kind"), row.get("t")
    if not isinstance(kind, str) or not (_is_seconds(t) or (kind == "head" and t is None)) or envelope.is_too_deep(row):
        return False
    if kind == "audio":
        counts = [row.get(name) for name in _COUNTS]
        has_counts = all(type(count) is int and 0 <= count < _LARGEST for count in counts)
        is_side = row.get("dir") in ("in", "out")
        return is_side and has_counts and _is_seconds(row.get("until")) and 0 < row["frames"] <= row["n"]
    if kind == "lost" and not _is_seconds(row.get("seconds", 0)):
        return False
    if kind == "transcript" and not ("text" in row and _is_seconds(row.get("ended"))):
        return False
    return all(isinstance(row.get(name, ""), str) for name in _TEXTS.get(kind, ()))


def _is_seconds(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < _LARGEST  # type: ignore[operator]


def seconds(t: float) -> float:
    """Return a time as rows have it."""
    return round(t, _DIGITS)


# -- audio ------------------------------------------------------------------------------------------------------------


class Stretches:
    """Joins audio frames of one side into one row if they follow each other evenly and without a gap.

    Args:
        side: "in" for the bot, "out" for the user.
        wav_rate_hz: The sample rate of the WAV file.
    """

    def __init__(self, side: Literal["in", "out"], wav_rate_hz: int) -> None:
        self._side = side
        self._wav_rate = wav_rate_hz
        self._frames = 0

    def add(self, t: float, rate_hz: int, at: int, n: int) -> list[Row]:
        """Add a frame. Return the stretches that end before it or with it.

        Args:
            t: The frame's arrival.
            rate_hz: The sample rate of its source.
            at: Its place in the WAV file, in samples.
            n: Its length in the WAV file, in samples.
        """
        ended = [] if self._continues(t, rate_hz, at) else self.end()
        if not self._frames:
            self._t, self._rate, self._at, self._n = t, rate_hz, at, 0
            self._slopes = 0.0, math.inf
        self._until = t
        self._n += n
        if index := self._frames:  # the line from the first frame may have any slope that is near each frame
            least, most = self._slopes
            self._slopes = (max(least, (t - self._t - _UNEVEN) / index), min(most, (t - self._t + _UNEVEN) / index))
        self._frames += 1
        return ended + self.end() if self._n >= _STRETCH * self._wav_rate else ended

    def _continues(self, t: float, rate_hz: int, at: int) -> bool:
        if not self._frames or rate_hz != self._rate or at != self._at + self._n:
            return False
        least, most = self._slopes
        return least <= (t - self._t) / self._frames <= most

    def end(self) -> list[Row]:
        """End the stretch, and return it if there is one."""
        if not self._frames:
            return []
        row = {"t": seconds(self._t), "until": seconds(self._until), "kind": "audio", "dir": self._side}
        row |= {"rate_hz": self._rate, "at": self._at, "n": self._n, "frames": self._frames}
        self._frames = 0
        return [row]


def before(row: Row, place: int) -> Row | None:
    """Return the part of a stretch before a place, if its audio from there on was never heard. None: none is left."""
    n, frames = place - row["at"], row["frames"]
    if n <= 0:
        return None
    if n >= row["n"]:
        return row
    kept = min(frames, math.ceil(frames * n / row["n"]))
    until = row["t"] + (row["until"] - row["t"]) * (kept - 1) / max(1, frames - 1)
    return row | {"n": n, "frames": kept, "until": seconds(until)}


def arrivals(row: Row) -> list[tuple[float, int, int]]:
    """Return the frames of a stretch: the arrival of each, and its first and last sample in the WAV file."""
    frames, at, n = row["frames"], row["at"], row["n"]
    step = (row["until"] - row["t"]) / max(1, frames - 1)
    bounds = [at + n * index // frames for index in range(frames + 1)]
    return [(row["t"] + index * step, bounds[index], bounds[index + 1]) for index in range(frames)]


# -- redaction --------------------------------------------------------------------------------------------------------

# Characters of a name that are searched. A bot may send any names, and some are kept.
_LONGEST_NAME = 256
_WORDS = r"token|secret|password|passwd|api[_-]?key|authorization|cookie|credential"
_SECRET_NAME = re.compile(rf"(?<![a-z])(?:{_WORDS})s?(?![a-z])")
_WORD_IN_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LOGIN = re.compile(r"(?<=://)[^\s/?#]*(?=@)")
_QUERY_VALUE = re.compile(r"(?<=[?&;#])([\w.~%+-]+)=([^&;#\s\"'<>]+)")


def is_secret_name(name: str) -> bool:
    """Return whether the value of this name is a secret: the name contains a secret word as a whole word."""
    return _is_secret_name(name[:_LONGEST_NAME])


@lru_cache(maxsize=1024)
def _is_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(_WORD_IN_CAMEL_CASE.sub("_", name).lower()) is not None


def secrets_of(url: str | None = None, headers: Mapping[str, str] | None = None, data: Any = None) -> set[str]:
    """Return the secrets of a URL (login and query), of headers, and of data (by the names in it)."""
    found: set[str] = set()
    if url:
        parts = urlsplit(url)
        found |= {unquote(part) for part in (parts.username, parts.password) if part}
        found |= {value for _, value in parse_qsl(parts.query)}
        found |= {part.partition("=")[2] for part in parts.query.split("&")}
    for value in (headers or {}).values():
        found |= {value, value.rpartition(" ")[2]}  # a scheme may precede it, as in "Bearer ..."
        found |= {part.partition("=")[2].strip() for part in value.split(";")}
    named: list[tuple[Any, bool]] = [(data, False)]
    while named:
        value, is_secret = named.pop()
        if isinstance(value, Mapping):
            named += [(each, is_secret or is_secret_name(str(name))) for name, each in value.items()]
        elif isinstance(value, (list, tuple)):
            named += [(each, is_secret) for each in value]
        elif is_secret and isinstance(value, str):
            found.add(value)
    return {secret for secret in found if len(secret) >= _SHORTEST_SECRET}


class Redactor:
    """Removes secrets from rows before they are written.

    Args:
        secrets: Texts that are replaced wherever they occur.
        function: The application's function. It returns a row, perhaps another one, or None for no row.
    """

    def __init__(self, secrets: Iterable[str] = (), function: Callable[[Row], Row | None] | None = None) -> None:
        self._function = function
        self._secrets: set[str] = set()
        self._known: re.Pattern[str] | None = None
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Replace these secrets from now on, too."""
        known = len(self._secrets)
        self._secrets |= {form for secret in secrets for form in (secret, quote(secret, safe=""), quote(secret))}
        if len(self._secrets) == known:
            return
        longest_first = sorted(self._secrets, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first)))

    def row(self, row: Row) -> Row | None:
        """Return the writable form of a row. None: nothing may be written."""
        redacted: Row = self.value(row)
        return self._function(redacted) if self._function is not None else redacted

    def value(self, value: Any, *, is_secret: bool = False) -> Any:
        """Return the writable form of a value of a JSON document.

        Args:
            value: The value.
            is_secret: True if a name marks it as a secret.
        """
        kind = type(value)
        if kind is str:
            return MASK if is_secret and value else self.text(value)
        if kind is dict:
            # In an option of a config, the name is a value itself.
            is_secret = is_secret or ("value" in value and is_secret_name(str(value.get("name"))))
            return {
                self.text(name): self.value(each, is_secret=is_secret or is_secret_name(name))
                for name, each in value.items()
            }
        if kind is list or kind is tuple:
            return [self.value(each, is_secret=is_secret) for each in value]
        if kind is float and not math.isfinite(value):
            return None  # JSON has no such number
        return value

    def text(self, text: str) -> str:
        """Return the writable form of a text."""
        size = len(text)
        if size > _MAX_STRING:
            text = text[: _MAX_STRING + 2 * _MARGIN]
        if self._known is not None:
            text = self._known.sub(MASK, text)
        if "://" in text:
            text = _LOGIN.sub(MASK, text)
        if "=" in text:
            text = _QUERY_VALUE.sub(_without_secret, text)
        if size > _MAX_STRING:
            # A secret behind the margin may be cut. The text now ends before it.
            end = len(text) - _MARGIN if size > _MAX_STRING + 2 * _MARGIN else len(text)
            text = f"{text[: max(0, min(_MAX_STRING, end))]}... (cut, it has {size} characters)"
        return text


def _without_secret(value: re.Match[str]) -> str:
    return f"{value[1]}={MASK}" if is_secret_name(value[1]) else value[0]


def message_row(t: float, side: str, text: str | bytes | bytearray) -> Row:
    """Return the row of a message, from its JSON text. If it is not JSON, or over a limit, only the size is kept."""
    row: Row = {"t": t, "kind": "message", "dir": side}
    try:
        if len(text) > envelope.MAX_VALUES and envelope.has_too_many_values(text):
            raise ProtocolError("too many values")
        document = json.loads(text)
        if envelope.is_too_deep(document):
            raise ProtocolError("too deep")
    except (ValueError, RecursionError, ProtocolError) as error:
        why = "not JSON" if isinstance(error, ValueError) else "over a limit"
        return row | {"message": None, "skipped": f"{len(text)} bytes, {why}"}
    return row | {"message": document}
