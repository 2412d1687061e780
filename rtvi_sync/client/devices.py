"""The part of the client's interface that is about microphone, speaker and camera."""

from __future__ import annotations

from ..media import AudioSink, AudioSource, MediaDeviceInfo, MediaState, Tracks, VideoSource
from ..media.kinds import CHOICES
from ..protocol.validation import BOOL
from .base import ClientPart


class ClientDevices(ClientPart):
    """Devices and tracks. Every method may be called on any thread; with a microphone or speaker of the machine PyAudio
    has to be installed, see docs/audio.md.
    """

    def init_devices(self) -> None:
        """Open microphone, speaker and camera before there is a session: to show levels and choose among them.

        What is disabled is not opened, nor is what the transport does not carry. Nothing is sent before the bot is
        ready. The devices stay open until `disconnect()`, or the end of the session that `connect()` begins. In a
        session, opens what is not open yet.

        A default device that is missing is told of by the event `device_error`.

        Raises:
            DeviceError: a device that was asked for by its id cannot be used.
            MissingExtraError: it needs a library that is not installed; the message says how to install it.
        """
        self._manager.init_devices()

    def get_all_mics(self) -> list[MediaDeviceInfo]:
        """The microphones there are at this moment.

        Raises:
            MissingExtraError: PyAudio, or the library under it, is not installed; the message says how to install it.
            DeviceError: the sound system of the machine does not answer.
        """
        return self._manager.media.devices("mic")

    def get_all_speakers(self) -> list[MediaDeviceInfo]:
        """The speakers there are at this moment. Errors as of `get_all_mics()`."""
        return self._manager.media.devices("speaker")

    def get_all_cams(self) -> list[MediaDeviceInfo]:
        """The cameras there are at this moment. Errors as of `get_all_mics()`, for OpenCV."""
        return self._manager.media.devices("cam")

    @property
    def selected_mic(self) -> MediaDeviceInfo | None:
        """The microphone in use, or to be used; None: the default, which was not opened yet, or a source object."""
        return self._manager.media.status_reporter.selected("mic")

    @property
    def selected_speaker(self) -> MediaDeviceInfo | None:
        """The speaker in use, or to be used; None: the default, which was not opened yet, or a sink object."""
        return self._manager.media.status_reporter.selected("speaker")

    @property
    def selected_cam(self) -> MediaDeviceInfo | None:
        """The camera in use, or to be used; None: the default, which was not opened yet, or a source object."""
        return self._manager.media.status_reporter.selected("cam")

    def update_mic(self, device_id: str | MediaDeviceInfo | AudioSource | None) -> None:
        """Use another microphone, now and in sessions to come. In a session the local track goes on.

        The event `mic_updated` tells which it is, in a session and after `init_devices()`.

        Args:
            device_id: one of `get_all_mics()`, or its id; None: the system's default; or a source object.

        Raises:
            DeviceError: it cannot be used; the old one goes on.
            MissingExtraError: it needs a library that is not installed.
            TypeError: it is neither.
            ValueError: it is the name of a file; for one pass a `WavSource`.
        """
        CHOICES["mic"].check(device_id=device_id)
        self._manager.devices.update("mic", device_id)

    def update_speaker(self, device_id: str | MediaDeviceInfo | AudioSink | None) -> None:
        """Use another speaker, now and in sessions to come; what was not heard yet is heard there. As `update_mic`."""
        CHOICES["speaker"].check(device_id=device_id)
        self._manager.devices.update("speaker", device_id)

    def update_cam(self, device_id: str | MediaDeviceInfo | VideoSource | None) -> None:
        """Use another camera, now and in sessions to come. As `update_mic()`."""
        CHOICES["cam"].check(device_id=device_id)
        self._manager.devices.update("cam", device_id)

    def enable_mic(self, enable: bool) -> None:
        """Unmute or mute the microphone, now and for sessions to come.

        Muting closes the device within 100 ms, so that the light beside it goes off; a source of the program's stands
        still. The bot hears 1 s of silence, then nothing.

        Raises:
            UnsupportedFeatureError: to unmute it, in a session whose transport carries no audio.
            DeviceError, MissingExtraError: a microphone that was asked for by its id cannot be opened.
        """
        BOOL.check(enable=enable)
        self._manager.devices.enable_mic(enable)

    @property
    def is_mic_enabled(self) -> bool:
        """False: muted."""
        return self._manager.media.settings.mic

    def enable_cam(self, enable: bool) -> None:
        """Turn the camera on or off, now and for sessions to come. Off, the device is closed.

        Raises:
            UnsupportedFeatureError: the transport carries no video; the event `unsupported_feature` fires, too.
            DeviceError, MissingExtraError: a camera that was asked for by its id cannot be opened.
        """
        BOOL.check(enable=enable)
        self._manager.devices.enable_cam(enable)

    @property
    def is_cam_enabled(self) -> bool:
        """False: off, or the transport carries no video."""
        return self._manager.media.settings.cam

    def enable_screen_share(self, enable: bool) -> None:
        """Begin or end to show the screen of this machine.

        Raises:
            UnsupportedFeatureError: the transport carries no video; the event `unsupported_feature` fires, too.
            DeviceError, MissingExtraError: the screen cannot be read; the event `screen_share_error` fires, too.
        """
        BOOL.check(enable=enable)
        self._manager.devices.enable_screen_share(enable)

    @property
    def is_sharing_screen(self) -> bool:
        """True while the screen is shown."""
        return self._manager.media.settings.screen

    def enable_speaker(self, enable: bool) -> None:
        """Let the speaker be heard, or not. Sinks and tracks get what the bot says in any case."""
        BOOL.check(enable=enable)
        self._manager.media.settings.speaker = enable

    @property
    def is_speaker_enabled(self) -> bool:
        """False: the speaker is mute."""
        return self._manager.media.settings.speaker

    @property
    def speaker_volume(self) -> float:
        """Volume of the speaker, 0.0 to 1.0. May be set at any time; sinks and tracks get what the bot says as it came.

        Raises:
            TypeError, ValueError: it is set to something else.
        """
        return self._manager.media.settings.volume

    @speaker_volume.setter
    def speaker_volume(self, volume: float) -> None:
        self._manager.media.set_speaker_volume(volume)

    @property
    def media_state(self) -> MediaState:
        """How it stands with microphone, speaker and camera."""
        return self._manager.media.status_reporter.state

    def tracks(self) -> Tracks:
        """The local and the bot's tracks there are now."""
        return self._manager.devices.tracks()
