"""Floor 2: where audio comes from and goes to.

Sources and sinks for programs without a sound card, the protocols to write your own, and what `tracks()` returns.
PCM is signed 16-bit little endian, mono, everywhere.
"""

from .base import AudioFrame, AudioSink, AudioSource, MediaDeviceInfo, VideoFrame, VideoSource
from .sinks import BytesSink, CallbackSink, NullSink, WavSink
from .tracks import ParticipantTracks, Track, TrackFrames, Tracks
from .virtual import BytesSource, CallbackSource, SilenceSource, ToneSource, WavSource

__all__ = [
    # protocols
    "AudioSource",
    "AudioSink",
    "VideoSource",
    # sources
    "WavSource",
    "BytesSource",
    "SilenceSource",
    "ToneSource",
    "CallbackSource",
    # sinks
    "WavSink",
    "BytesSink",
    "NullSink",
    "CallbackSink",
    # tracks
    "Track",
    "TrackFrames",
    "Tracks",
    "ParticipantTracks",
    "AudioFrame",
    "VideoFrame",
    # devices
    "MediaDeviceInfo",
]
