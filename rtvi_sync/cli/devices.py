"""List the microphones, speakers and cameras of this machine, or show which microphone hears you.

An id, or a part of it that no other has, is what --mic and --speaker of `rtvi-sync talk` take; programs give it to
update_mic(), update_speaker() and update_cam(). An asterisk marks the system's default.

Exit status: 0 if everything could be listed. 1 if not, because a library is missing or does not answer: stderr tells
what to install, and what there is otherwise is listed. Who has not installed the extra for cameras wants none: still 0.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from rtvi_sync import DeviceError, MissingExtraError, RTVIClient, RTVIError
from rtvi_sync.media import MediaDeviceInfo
from rtvi_sync.recording.text import clean

from .arguments import seconds
from .log_filter import without_logs_of_devices
from .meter import bar
from .mic_level import SILENCE, Ear
from .screen import Screen, screen_for

_TICK = 0.1
_METER = 30
_CAMERAS = "cameras"
_HEADERS = ("  id", "name")
_LEVELS = (*_HEADERS, "level", "dBFS")
# How long is listened where nobody watches, in seconds.
_UNWATCHED = 3.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "--levels",
        type=seconds,
        nargs="?",
        const=math.inf,
        metavar="SECONDS",
        help="open all microphones and show how loud it is there, for so many seconds: on a terminal live, without "
        f"SECONDS until Ctrl-C; elsewhere the loudest that was heard, without SECONDS in {_UNWATCHED:g}",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document, for programs")


@attrs.frozen
class Listing:
    """The devices of one kind.

    Attributes:
        name: of the kind.
        devices: all there are.
        problem: why there is no list.
    """

    name: str
    devices: Sequence[MediaDeviceInfo] = ()
    problem: RTVIError | None = None

    @property
    def failed(self) -> bool:
        """There is no list, though the program might want one."""
        optional = self.name == _CAMERAS and isinstance(self.problem, MissingExtraError)
        return self.problem is not None and not optional

    @classmethod
    def of(cls, name: str, devices: Callable[[], Sequence[MediaDeviceInfo]]) -> Listing:
        """Ask what there is."""
        try:
            return cls(name, devices())
        except RTVIError as error:
            return cls(name, problem=error)


def run(arguments: argparse.Namespace) -> int:
    """Show the devices; returns the exit status.

    Raises:
        KeyboardInterrupt: Ctrl-C, after what was heard until then has been shown.
    """
    client = RTVIClient()
    listings = [Listing.of("microphones", client.get_all_mics)]
    if arguments.levels is None:
        listings += [
            Listing.of("speakers", client.get_all_speakers),
            Listing.of(_CAMERAS, client.get_all_cams),
        ]
    problems = [listing.problem for listing in listings if listing.problem is not None]
    with screen_for() as screen, contextlib.ExitStack() as stack:
        ears: dict[str, Ear] = {}
        try:
            if arguments.levels is not None:
                stack.enter_context(without_logs_of_devices())
                ears = {mic.device_id: stack.enter_context(Ear(mic.device_id)) for mic in listings[0].devices}
                _listen(screen, listings[0], ears, arguments.levels)
        finally:
            if arguments.json:
                print(json.dumps(_document(listings, ears), indent=2))
            else:
                for listing in listings:
                    _show(screen, listing, ears)
    problems += [ear.problem for ear in ears.values() if ear.problem is not None]
    for text in dict.fromkeys(map(str, problems)):
        print(f"rtvi-sync devices: {clean(text)}", file=sys.stderr)
    return int(any(listing.failed for listing in listings))


def _listen(screen: Screen, mics: Listing, ears: Mapping[str, Ear], limit: float) -> None:
    if screen.live and ears:
        screen.line("Say something. Ctrl-C ends.")
    end = time.monotonic() + (limit if screen.live or limit < math.inf else _UNWATCHED)
    while ears and time.monotonic() < end:
        screen.partial_table(_LEVELS, _rows(mics, ears, lambda ear: ear.now), texts=3)
        time.sleep(_TICK)


def _show(screen: Screen, listing: Listing, ears: Mapping[str, Ear]) -> None:
    if listing.problem is not None:
        return
    title = listing.name.capitalize()
    if not listing.devices:
        screen.line(f"{title}: none")
    elif ears:
        rows = _rows(listing, ears, lambda ear: ear.loudest)
        screen.table(f"{title}, and the loudest that was heard there", _LEVELS, rows, texts=3)
    else:
        screen.table(title, _HEADERS, _rows(listing, ears), texts=2)
    screen.line("")


def _rows(
    listing: Listing, ears: Mapping[str, Ear], level: Callable[[Ear], float] = lambda _: SILENCE
) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for device in listing.devices:
        row = f"{'*' if device.is_default else ' '} {device.device_id}", device.label
        ear = ears.get(device.device_id)
        rows.append((*row, *_shown(level(ear), ear.problem)) if ear is not None else row)
    return rows


def _shown(level: float, problem: RTVIError | None) -> tuple[str, str]:
    if problem is not None:
        return f"not to be heard: {problem.type if isinstance(problem, DeviceError) else 'unknown'}", ""
    return bar(level, _METER, sys.stdout.encoding), f"{level:.0f}" if level > SILENCE else "-"


def _document(listings: Sequence[Listing], ears: Mapping[str, Ear]) -> dict[str, Any]:
    document: dict[str, Any] = {
        listing.name: [{**attrs.asdict(device), **_heard(ears.get(device.device_id))} for device in listing.devices]
        for listing in listings
    }
    return {**document, "problems": {lst.name: str(lst.problem) for lst in listings if lst.problem is not None}}


def _heard(ear: Ear | None) -> dict[str, Any]:
    if ear is None:
        return {}
    return {"loudest_dbfs": ear.loudest, "problem": str(ear.problem) if ear.problem is not None else None}
