"""The arguments that commands share: numbers, output files, and the address and options of the bot."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from rtvi_sync import (
    BotReadyData,
    DeviceError,
    InvalidTransportParamsError,
    MissingExtraError,
    Recording,
    RTVIClient,
    RTVIError,
)
from rtvi_sync.client.candidates import TransportName, candidates_for
from rtvi_sync.media import WavSource
from rtvi_sync.media.audio_files import check_wav_name
from rtvi_sync.protocol.text import clean
from rtvi_sync.protocol.validation import OWN_HEADERS, POSITIVE, SECONDS, WAIT, Rule, headers_fault
from rtvi_sync.session.connect_request import BotURL

# The exit status for wrong arguments, as in argparse.
USAGE = 2
_MAX_PORT = 65535
_TOKEN_VARIABLE = "RTVI_TOKEN"  # noqa: S105 - a name

URL_HELP = (
    "ws:// or wss:// URL of its WebSocket; http:// or https:// URL of its start or connect endpoint "
    "(http://localhost:7860/start), or of the server that has one"
)

SAMPLE_HELP = 'ask a spoken sentence of this package: "Can you hear me when I speak ...?"'


def url(text: str) -> str:
    """Return an argument that is a bot's URL, as `RTVIClient.for_url()` takes it.

    Raises:
        argparse.ArgumentTypeError: No bot can be reached at this text.
    """
    try:
        BotURL.parse(text)
    except InvalidTransportParamsError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def seconds(text: str) -> float:
    """Parse an argument that is a number of seconds.

    Raises:
        argparse.ArgumentTypeError: The text is not a finite number, or is negative.
    """
    return _number(text, WAIT)


def limit(text: str) -> float:
    """Parse an argument that is a number of seconds above zero; raises like `seconds()`."""
    return _number(text, SECONDS)


def rate(text: str) -> float:
    """Parse an argument that is a number above zero; raises like `seconds()`."""
    return _number(text, POSITIVE)


def _number(text: str, rule: Rule) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not rule.has_value(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not {rule.what}")
    return value


def words(text: str) -> str:
    """Parse an argument with words for the bot; raise argparse.ArgumentTypeError if it is empty."""
    if not text.strip():
        raise argparse.ArgumentTypeError("there are no words in it")
    return text


def port(text: str) -> int:
    """Parse an argument that is the number of a TCP port; 0 takes any free one.

    Raises:
        argparse.ArgumentTypeError: The text is not a port number.
    """
    if not text.isdecimal() or int(text) > _MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: 0 to {_MAX_PORT}")
    return int(text)


def count(text: str) -> int:
    """Parse an argument that is a count of at least one.

    Raises:
        argparse.ArgumentTypeError: The text is not such a number.
    """
    value = count_or_zero(text)
    if not value:
        raise argparse.ArgumentTypeError("'0' is not a number from 1 on")
    return value


def count_or_zero(text: str) -> int:
    """Parse an argument that is a count, perhaps zero; raises like `count()`."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of things")
    return int(text)


def header(text: str) -> tuple[str, str]:
    """Parse an argument that is a header of an HTTP request: "NAME: VALUE".

    Raises:
        argparse.ArgumentTypeError: The text is not a header.
    """
    name, colon, value = (part.strip() for part in text.partition(":"))
    if not (colon and value) or headers_fault({name: value}, OWN_HEADERS):  # without the text, which may hold a key
        raise argparse.ArgumentTypeError("a header looks like this: 'Authorization: Bearer ...', in ASCII")
    return name, value


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add the option of a command that prints JSON for other programs."""
    parser.add_argument("--json", action="store_true", help="print only JSON")


def add_connect_options(
    parser: argparse.ArgumentParser, *, timeout: float = 15.0, late: str = "", limit_option: str = "--timeout"
) -> None:
    """Add the options of a command that connects.

    Args:
        parser: Parser of the command.
        timeout: Default of --timeout, in seconds.
        late: Failure after --timeout; "" for a bot that is not ready.
        limit_option: Name of --timeout, if the command uses that for another limit.
    """
    parser.add_argument(
        "--token",
        default=os.environ.get(_TOKEN_VARIABLE),
        help=f"token for the bot's WebSocket. Better set {_TOKEN_VARIABLE} in the environment: other users of this "
        "machine can read command lines",
    )
    parser.add_argument(
        "--header",
        type=header,
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="HTTP header for the connect endpoint, such as 'Authorization: Bearer ...'; may be given several times",
    )
    parser.add_argument(
        limit_option,
        type=limit,
        default=timeout,
        metavar="S",
        help=f"fail if {late or 'the bot is not ready'} after S seconds (%(default)g)",
    )
    parser.add_argument(
        "--transport",
        choices=get_args(TransportName),
        default="auto",
        help="transport to the bot; by default each one is tried",
    )


def connect_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of `add_connect_options()`, as options of `RTVIClient.for_url()`."""
    return {
        "token": arguments.token,
        "headers": dict(arguments.header),
        "connect_timeout": arguments.timeout,
        "transport": arguments.transport,
    }


def transport_fault(arguments: argparse.Namespace) -> str | None:
    """Return why a command's transport cannot reach its URL, or is not installed. None if it can, or without these
    arguments.
    """
    url, transport = getattr(arguments, "url", None), getattr(arguments, "transport", None)
    if url is None or transport is None:
        return None
    try:
        candidates_for(url, transport)
    except (InvalidTransportParamsError, MissingExtraError) as error:
        return str(error)
    return None


def check_takes_text(arguments: argparse.Namespace) -> None:
    """Check that typed text can reach the bot, before connecting.

    Raises:
        RTVIError: The transport carries no messages.
    """
    transport = candidates_for(arguments.url, arguments.transport)[0].transport
    if not transport.carries_messages:
        raise RTVIError(f"--transport {arguments.transport} carries no text: pass --wav FILE or --sample instead")


def question_file(path: Path) -> WavSource:
    """Return the source of an audio file with a question.

    Raises:
        RTVIError: The file cannot be read.
    """
    try:
        return WavSource(path)
    except DeviceError as error:
        if error.type != "not-found":
            raise
        raise RTVIError(f"{error}. Record a question, or pass --sample in place of --wav") from error


def wrong_usage(command: str, error: Exception) -> int:
    """Report an unusable argument on stderr, and return the exit status."""
    for line in f"rtvi-sync {command}: {error}".splitlines():
        print(clean(line), file=sys.stderr)
    return USAGE


def describe_bot(ready: BotReadyData) -> str:
    """Return one line with the bot's library and RTVI version, from its `bot-ready`."""
    library = " ".join(filter(None, (ready.about.library, ready.about.library_version)))
    return f"connected to {library or 'a bot'}, RTVI version {ready.version or 'unknown'}"


def writable_wav(path: Path, option: str) -> Path:
    """Return the absolute path of a future WAV file; raises like `writable_path()`."""
    path = writable_path(path, option)
    try:
        check_wav_name(path)
    except ValueError as error:
        raise RTVIError(f"{option}: {error}") from None
    return path


def writable_path(path: Path, option: str) -> Path:
    """Return the absolute path of a future output file.

    Raises:
        RTVIError: The file cannot be written. This check runs before the conversation, so that no part of it is lost.
    """
    path = path.absolute()
    if not path.parent.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK) or path.is_dir():
        raise RTVIError(f"Cannot write {path}: pass {option} a file in an existing directory that you may write to")
    return path


def check_different(files: Mapping[str, Path | None]) -> None:
    """Check that the files of a command, by option, differ, before one of them is written.

    Raises:
        RTVIError: Two are the same, so that one would be lost.
    """
    options: dict[str, str] = {}
    for option, path in files.items():
        if path is not None and (other := options.setdefault(os.path.realpath(path), option)) != option:
            raise RTVIError(f"{other} and {option} are the same file, {path}, which would be overwritten: pass two")


def _check_replaceable(path: Path) -> None:
    """Check that the file of the messages, which the user has not named, replaces only a recording's file."""
    try:
        Recording.load(path)
    except FileNotFoundError:
        return
    except ValueError as error:
        raise RTVIError(f"The messages would replace a file: {error}. Pass another name, or move it") from None


@contextlib.contextmanager
def recorded(client: RTVIClient, path: Path | None, print_line: Callable[[str], None]) -> Iterator[None]:
    """Record a client's conversation in the block if there is a path, and print the name of the file.

    Raises:
        OSError: The recording cannot be written.
        RTVIError: The disk was full, or the file beside the WAV file belongs to something else.
    """
    if path is None:
        yield
        return
    _check_replaceable(path)
    recording = client.record(path, overwrite=True)
    try:
        yield
    finally:
        recording.close()
        audio = next((each for each in recording.paths if each.suffix == ".wav"), None)
        if audio is not None:
            print_line(f"The conversation is in {audio} (left: you, right: the bot)")
    if any(lost["why"] == "full" for lost in recording.lost):
        raise RTVIError(f"The recording {path} is not complete, because there was no room for all of it")
