"""List the microphones, speakers and cameras of this machine, or show which microphone hears you.

--mic and --speaker of `rtvi-sync talk` take an id, or a part of it that matches no other. Applications pass the id to
update_mic(), update_speaker() and update_cam(). An asterisk marks the system's default.

Exit status: 0 if there is a microphone or a speaker; 1 if there is neither, or a library is missing or does not answer.
Stderr says what is missing, and its cure; all other devices are listed. Cameras are optional.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from rtvi_sync import DeviceError, MissingExtraError, RTVIClient, RTVIError
from rtvi_sync.explanations import hint_of
from rtvi_sync.media import AudioLevel, MediaDeviceInfo, NullSink
from rtvi_sync.protocol.text import clean

from ..concurrency.clock import monotonic
from ..media.devices.audio_errors import not_found
from .arguments import seconds
from .device_choice import suppress_device_logs
from .screen import Screen, cell_width, level_bar, screen_for

_TICK = 0.1
# Width of a meter: on a terminal, the space beside the other columns.
_METER_WIDTH, _MIN_METER = 30, 8
_OTHERS = 23  # columns for the lines, blanks and figures beside it
_CAMERAS = "cameras"
_AUDIO_KINDS = {"microphones": "audioinput", "speakers": "audiooutput"}
_HEADERS = ("  id", "name")
_LEVELS = (_HEADERS[0], "level", "dBFS")
SILENCE_DBFS = -100.0
# Seconds of measurement if the output is not a terminal.
_DEFAULT_SECONDS = 3.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "--levels",
        type=seconds,
        nargs="?",
        const=math.inf,
        metavar="SECONDS",
        help="open all microphones and show their levels for SECONDS: live on a terminal, by default until Ctrl-C; "
        f"otherwise the peak level, by default of {_DEFAULT_SECONDS:g} s",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


class MicLevelMonitor:
    """Measures the level of a microphone inside its context, by a client that is never connected.

    Its attributes may be read at any time, on any thread.

    Attributes:
        current_dbfs, loudest_dbfs: The latest level and the peak.
        problem: The microphone's error; None without one.
    """

    def __init__(self, device_id: str) -> None:
        self.current_dbfs: float = SILENCE_DBFS
        self.loudest_dbfs: float = SILENCE_DBFS
        self.problem: RTVIError | None = None
        self._client = RTVIClient(mic=device_id, speaker=NullSink())
        self._client.on("local_audio_level", self._on_level)
        self._client.on("device_error", self._on_device_error)

    def __enter__(self) -> MicLevelMonitor:
        try:
            self._client.init_devices()
        except RTVIError as error:
            self.problem = error
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def _on_level(self, level: AudioLevel) -> None:
        self.current_dbfs = level.dbfs
        self.loudest_dbfs = max(self.loudest_dbfs, level.dbfs)
        self.problem = None

    def _on_device_error(self, error: DeviceError) -> None:
        self.current_dbfs, self.problem = SILENCE_DBFS, error


@attrs.frozen
class Listing:
    """The devices of one kind.

    Attributes:
        name: Name of the kind.
        devices: All devices.
        problem: Why there are none; None if there are, and for a computer without cameras.
    """

    name: str
    devices: Sequence[MediaDeviceInfo] = ()
    problem: RTVIError | None = None

    @property
    def is_optional(self) -> bool:
        """True if the devices are not listed because the extra for cameras is not installed."""
        return self.name == _CAMERAS and isinstance(self.problem, MissingExtraError)

    @property
    def failed(self) -> bool:
        """True if the devices could not be listed, and the extra for them is not optional."""
        is_absent = isinstance(self.problem, DeviceError) and self.problem.type == "not-found"
        return self.problem is not None and not is_absent and not self.is_optional

    @classmethod
    def query(cls, name: str, devices: Callable[[], Sequence[MediaDeviceInfo]]) -> Listing:
        """Return the listing of a kind, with the error if there is one."""
        try:
            found = devices()
        except RTVIError as error:
            return cls(name, problem=error)
        kind = _AUDIO_KINDS.get(name)
        return cls(name, found, None if found or kind is None else not_found(kind, None, ()))


def run(arguments: argparse.Namespace) -> int:
    """Print the devices, and return the exit status.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed, after the measured levels were printed.
    """
    client = RTVIClient()
    listings = [Listing.query("microphones", client.get_all_mics)]
    if arguments.levels is None:
        listings += [
            Listing.query("speakers", client.get_all_speakers),
            Listing.query(_CAMERAS, client.get_all_cams),
        ]
    problems = [listing.problem for listing in listings if listing.problem is not None and not listing.is_optional]
    with screen_for() as screen, contextlib.ExitStack() as stack:
        monitors: dict[str, MicLevelMonitor] = {}
        try:
            if arguments.levels is not None:
                stack.enter_context(suppress_device_logs())
                monitors = {
                    mic.device_id: stack.enter_context(MicLevelMonitor(mic.device_id)) for mic in listings[0].devices
                }
                _show_levels(screen, listings[0], monitors, arguments.levels)
        finally:
            if arguments.json:
                print(json.dumps(_document(listings, monitors), indent=2))
            else:
                for listing in listings:
                    _print_listing(screen, listing, monitors)
    problems += [monitor.problem for monitor in monitors.values() if monitor.problem is not None]
    for text in dict.fromkeys(map(str, problems)):
        print(f"rtvi-sync devices: {clean(text)}", file=sys.stderr)
    for hint in dict.fromkeys(hint for text in map(str, problems) if (hint := hint_of(text))):
        print(hint, file=sys.stderr)
    has_audio = any(listing.devices for listing in listings if listing.name in _AUDIO_KINDS)
    return int(not has_audio or any(listing.failed for listing in listings))


def _show_levels(screen: Screen, mics: Listing, monitors: Mapping[str, MicLevelMonitor], limit: float) -> None:
    if screen.live and monitors:
        screen.print_line("Say something. Ctrl-C ends.")
    end = monotonic() + (limit if screen.live or limit < math.inf else _DEFAULT_SECONDS)
    while monitors and monotonic() < end:
        screen.show_partial_table(_LEVELS, _rows(mics, monitors, lambda monitor: monitor.current_dbfs), texts=2)
        time.sleep(_TICK)


def _print_listing(screen: Screen, listing: Listing, monitors: Mapping[str, MicLevelMonitor]) -> None:
    title = listing.name.capitalize()
    if listing.failed:
        return
    if listing.is_optional:
        screen.print_line(f"{title}: {listing.problem}")
    elif not listing.devices:
        screen.print_line(f"{title}: none")
    elif monitors:
        rows = _rows(listing, monitors, lambda monitor: monitor.loudest_dbfs)
        screen.print_table(f"{title}, with peak level", _LEVELS, rows, texts=2)
    else:
        screen.print_table(title, _HEADERS, _rows(listing, monitors), texts=2)
    screen.print_line("")


def _rows(
    listing: Listing,
    monitors: Mapping[str, MicLevelMonitor],
    level: Callable[[MicLevelMonitor], float] = lambda _: SILENCE_DBFS,
) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    longest = max((cell_width(device.device_id) for device in listing.devices), default=0)
    room = shutil.get_terminal_size().columns - longest - _OTHERS
    meter = max(_MIN_METER, min(_METER_WIDTH, room)) if sys.stdout.isatty() else _METER_WIDTH
    for device in listing.devices:
        id_ = f"{'*' if device.is_default else ' '} {device.device_id}"
        monitor = monitors.get(device.device_id)
        cells = (device.label,) if monitor is None else _level_cells(level(monitor), meter, monitor.problem)
        rows.append((id_, *cells))
    return rows


def _level_cells(level: float, meter: int, problem: RTVIError | None) -> tuple[str, str]:
    if problem is not None:
        return f"unavailable: {problem.type if isinstance(problem, DeviceError) else 'unknown'}", ""
    return level_bar(level, meter, sys.stdout.encoding), f"{level:.0f}" if level > SILENCE_DBFS else "-"


def _document(listings: Sequence[Listing], monitors: Mapping[str, MicLevelMonitor]) -> dict[str, Any]:
    document: dict[str, Any] = {
        listing.name: [
            {**attrs.asdict(device), **_level_fields(monitors.get(device.device_id))} for device in listing.devices
        ]
        for listing in listings
    }
    return {**document, "problems": {lst.name: str(lst.problem) for lst in listings if lst.problem is not None}}


def _level_fields(monitor: MicLevelMonitor | None) -> dict[str, Any]:
    if monitor is None:
        return {}
    return {
        "loudest_dbfs": monitor.loudest_dbfs,
        "problem": str(monitor.problem) if monitor.problem is not None else None,
    }
