"""Sources and sinks of audio and video, the protocols of custom ones, and the tracks that `tracks()` returns.

PCM is signed 16-bit little endian, mono, everywhere.
"""

import typing

from .base import AudioFrame, AudioSink, AudioSource, MediaDeviceInfo, VideoFrame, VideoSource
from .port import MediaPort
from .push_source import PushSource
from .sinks import BytesSink, CallbackSink, NullSink, WavSink
from .sources import BytesSource, CallbackSource, SilenceSource, ToneSource, WavSource
from .status import AudioDroppedData, AudioLevel, DeviceStatus, MediaState, Participant, TrackData
from .tracks import AudioTrack, ParticipantTracks, Track, TrackFrames, Tracks, VideoTrack

if typing.TYPE_CHECKING:
    from .noise import NoisySource
    from .video import CameraSource, FileVideoSource, ScreenSource

__all__ = [
    # protocols
    "AudioSource",
    "AudioSink",
    "VideoSource",
    "MediaPort",
    # sources
    "WavSource",
    "BytesSource",
    "SilenceSource",
    "ToneSource",
    "CallbackSource",
    "PushSource",
    "NoisySource",
    # video sources
    "CameraSource",
    "FileVideoSource",
    "ScreenSource",
    # sinks
    "WavSink",
    "BytesSink",
    "NullSink",
    "CallbackSink",
    # tracks
    "Track",
    "AudioTrack",
    "VideoTrack",
    "TrackFrames",
    "Tracks",
    "ParticipantTracks",
    "AudioFrame",
    "VideoFrame",
    # devices
    "MediaDeviceInfo",
    "MediaState",
    "DeviceStatus",
    # events
    "AudioLevel",
    "AudioDroppedData",
    "TrackData",
    "Participant",
]

if not typing.TYPE_CHECKING:  # a type checker would infer from it that every name exists

    def __getattr__(name: str) -> typing.Any:
        if name in __all__:
            from . import noise, video

            module = noise if name == "NoisySource" else video
            return globals().setdefault(name, getattr(module, name))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
