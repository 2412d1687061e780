"""Checks around the conversation: the network's delays, limits, and this machine."""

from __future__ import annotations

import importlib.util
import platform
from collections.abc import Callable
from typing import Final

from rtvi_sync import MissingExtraError, RTVIClient, RTVIError, __version__
from rtvi_sync.installation import install_command

from .arrivals import arrivals_of
from .diagnosis import Diagnosis, ok, skipped, warn
from .examination import Examination

# Seconds of a round trip, and of jitter, that people notice.
_FAR: Final = 0.3
_UNSTEADY: Final = 0.2
# Time limit of the search for devices, in seconds.
LOOK: Final = 4.0


def ping(exam: Examination) -> Diagnosis:
    """Report the distance to the server."""
    seconds = exam.client.stats().round_trip or exam.round_trip
    if seconds is None:
        return skipped("not measured")
    text = f"a round trip takes {1000 * seconds:.1f} ms"
    return ok(text) if seconds < _FAR else warn(text, "Run the bot closer: this delays each answer")


def timing(exam: Examination) -> Diagnosis:
    """Report how evenly the bot's audio arrives."""
    arrivals = arrivals_of(exam.voice)
    if arrivals is None or arrivals.jitter is None:
        return skipped("there was no audio to measure")
    text = f"95 % of the audio arrived within {1000 * arrivals.jitter:.0f} ms of an even pace"
    if arrivals.jitter < _UNSTEADY:
        return ok(text)
    return warn(text, "The network, the bot or this machine is too busy")


def limits(exam: Examination) -> Diagnosis:
    """Report the size limit of a message."""
    transport = exam.client.transport
    if transport is None:
        return skipped("there is no session")
    return ok(f"messages of up to {transport.max_message_size:,} bytes are sent")


def local(exam: Examination) -> Diagnosis:
    """Report the devices and libraries of this machine."""
    facts = [f"Python {platform.python_version()}", f"rtvi_sync {__version__}"]
    facts += [name if importlib.util.find_spec(name) else f"no {name}" for name in ("soxr", "orjson", "aiortc")]
    try:
        facts += exam.within(LOOK, _all_devices)
    except TimeoutError:
        facts.append("no list of devices in time: see rtvi-sync devices")
    return ok(", ".join(facts))


def _all_devices() -> list[str]:
    client = RTVIClient()
    kinds = (("microphones", client.get_all_mics), ("speakers", client.get_all_speakers))
    return [*dict.fromkeys(_devices(name, devices) for name, devices in kinds)]


def _devices(name: str, devices: Callable[[], object]) -> str:
    try:
        found = devices()
    except MissingExtraError:
        return f"no library for devices ({install_command('sounddevice')})"
    except RTVIError:
        return f"no {name}: see rtvi-sync devices"
    if isinstance(found, tuple | list):
        return f"{len(found)} {name}" if found else f"no {name}: see rtvi-sync devices"
    return ""
