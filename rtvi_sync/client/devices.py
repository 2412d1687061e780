"""The part of the client's interface for microphone, speaker and camera."""

from __future__ import annotations

from typing import Any, Literal

from ..errors import UnsupportedFeatureError, fresh_copy
from ..events import RTVIEvent
from ..media import MediaDeviceInfo, MediaState, Tracks
from ..media.kinds import CHOICES, CamChoice, MicChoice, SpeakerChoice
from ..media.media import Media
from ..protocol.validation import BOOL
from ..transports.base import Transport
from .base import ClientBase


class ClientDevices(ClientBase):
    """Devices and tracks. Every method may be called on any thread.

    A microphone or speaker of the machine needs PyAudio or sounddevice; see docs/guides/audio.md.
    """

    def init_devices(self) -> None:
        """Open microphone, speaker and camera before there is a session, to show levels and choose among them.

        Does not open disabled devices, or devices that the transport doesn't carry. Sends nothing before the bot is
        ready. The devices stay open until `disconnect()`, or until the end of the session that `connect()` starts. In a
        session, opens the devices that are not open yet.

        If a default device is missing, the event `device_error` reports it.

        Raises:
            DeviceError: A device that was requested by its id cannot be used.
            MissingExtraError: A device needs a library that is not installed. The message says how to install it.
        """
        self._life.init_devices()

    def get_all_mics(self) -> list[MediaDeviceInfo]:
        """Return the microphones that are present.

        Raises:
            MissingExtraError: PyAudio, or the library under it, is not installed. The message says how to install it.
            DeviceError: The machine's sound system does not answer.
        """
        return self._life.media.devices("mic")

    def get_all_speakers(self) -> list[MediaDeviceInfo]:
        """Return the speakers that are present. Errors: as `get_all_mics()`."""
        return self._life.media.devices("speaker")

    def get_all_cams(self) -> list[MediaDeviceInfo]:
        """Return the cameras that are present. Errors: as `get_all_mics()`, for OpenCV."""
        return self._life.media.devices("cam")

    @property
    def selected_mic(self) -> MediaDeviceInfo | None:
        """The microphone in use, or for the next session. None: the default, not opened yet, or a source object."""
        return self._life.media.mic.info

    @property
    def selected_speaker(self) -> MediaDeviceInfo | None:
        """The speaker in use, or for the next session. None: the default, not opened yet, or a sink object."""
        return self._life.media.speaker.info

    @property
    def selected_cam(self) -> MediaDeviceInfo | None:
        """The camera in use, or for the next session. None: the default, not opened yet, or a source object."""
        return self._life.media.cam.info

    def update_mic(self, device_id: MicChoice) -> None:
        """Use another microphone, in this session and later ones. In a session the local track continues.

        The event `mic_updated` reports the new one, in a session and after `init_devices()`.

        Args:
            device_id: One of `get_all_mics()`, or its id. None: the system's default. False: no microphone. Or a source
                object, a file as a `Path`, or a function as of `CallbackSource`.

        Raises:
            DeviceError: The device cannot be used. The old one stays in use.
            MissingExtraError: The device needs a library that is not installed.
            TypeError: `device_id` is none of these.
            ValueError: `device_id` is a file name. Pass it as a `Path`.
        """
        CHOICES["mic"].check(device_id=device_id)
        self._update("mic", device_id)

    def update_speaker(self, device_id: SpeakerChoice) -> None:
        """Use another speaker, in this session and later ones. It also plays the audio that was not played yet. Like
        `update_mic()`.
        """
        CHOICES["speaker"].check(device_id=device_id)
        self._update("speaker", device_id)

    def update_cam(self, device_id: CamChoice) -> None:
        """Use another camera, in this session and later ones. Like `update_mic()`."""
        CHOICES["cam"].check(device_id=device_id)
        self._update("cam", device_id)

    def enable_mic(self, enable: bool) -> None:
        """Unmute or mute the microphone, in this session and later ones.

        Muting closes the device within 100 ms, so that its light goes off. A source of the application is no longer
        read. The bot gets 1 s of silence, then no audio.

        Args:
            enable: True: unmute. False: mute.

        Raises:
            UnsupportedFeatureError: It cannot be unmuted, because the session's transport carries no audio.
            DeviceError, MissingExtraError: A microphone that was requested by its id cannot be opened. In a session
                that starts without one, as with `ReconnectPolicy.forever()`, `device_error` is published instead of a
                `DeviceError`, and the microphone is tried again.
        """
        BOOL.check(enable=enable)
        self._life.media.settings.mic = enable  # also if the transport has devices of its own
        self._in_charge.enable_mic(enable)

    @property
    def is_mic_enabled(self) -> bool:
        """True if the microphone is not muted."""
        return self._life.media.settings.mic

    def enable_cam(self, enable: bool) -> None:
        """Turn the camera on or off, in this session and later ones. Turning it off closes the device.

        Args:
            enable: True: on. False: off.

        Raises:
            UnsupportedFeatureError: The transport carries no video. The event `unsupported_feature` fires, too.
            DeviceError, MissingExtraError: A camera that was requested by its id cannot be opened. In a session
                that starts without one, as with `ReconnectPolicy.forever()`, `device_error` is published instead of a
                `DeviceError`, and the camera is tried again.
        """
        BOOL.check(enable=enable)
        self._enable_video("cam", enable)

    @property
    def is_cam_enabled(self) -> bool:
        """True if the camera is on. Transports without video ignore it."""
        return self._life.media.settings.cam

    def enable_screen_share(self, enable: bool) -> None:
        """Start or stop sharing the screen of this machine.

        Args:
            enable: True: start. False: stop.

        Raises:
            UnsupportedFeatureError: The transport carries no video. The event `unsupported_feature` fires, too.
            DeviceError, MissingExtraError: The screen cannot be read. The event `screen_share_error` fires, too.
        """
        BOOL.check(enable=enable)
        self._enable_video("screen-share", enable)

    @property
    def is_sharing_screen(self) -> bool:
        """True if the screen is shared."""
        return self._life.media.settings.screen

    def enable_speaker(self, enable: bool) -> None:
        """Unmute or mute the speaker. Sinks and tracks get the bot's audio in any case."""
        BOOL.check(enable=enable)
        self._life.media.settings.speaker = enable

    @property
    def is_speaker_enabled(self) -> bool:
        """True if the speaker is not muted."""
        return self._life.media.settings.speaker

    @property
    def speaker_volume(self) -> float:
        """The volume of the speaker, 0.0 to 1.0. May be set at any time. It does not affect sinks and tracks.

        Raises:
            TypeError, ValueError: It is set to another value.
        """
        return self._life.media.settings.volume

    @speaker_volume.setter
    def speaker_volume(self, volume: float) -> None:
        self._life.media.set_speaker_volume(volume)

    @property
    def media_state(self) -> MediaState:
        """The status of microphone, speaker and camera."""
        return self._life.media.state

    def tracks(self) -> Tracks:
        """Return the current tracks of the client and the bot."""
        return self._in_charge.tracks()

    @property
    def _in_charge(self) -> Transport | Media:
        """Return the owner of the devices now: the transport of a session, which may have its own, or Media."""
        transport = self._life.transport_in_use()
        return transport if transport is not None else self._life.media

    def _update(self, kind: Literal["mic", "speaker", "cam"], choice: Any) -> None:
        """Replace a device now, or for later sessions."""
        transport = self._life.transport_in_use()
        if transport is None:
            self._life.media.select(kind, choice)
        else:
            {"mic": transport.update_mic, "speaker": transport.update_speaker, "cam": transport.update_cam}[kind](
                choice
            )

    def _enable_video(self, feature: Literal["cam", "screen-share"], enable: bool) -> None:
        """Turn the camera or the sharing of the screen on or off, if the transport carries video."""
        life = self._life
        transport = life.transport_in_use()
        in_charge = transport if transport is not None else life.media
        try:
            if enable and not (life.prefer_video() if transport is None else transport.supports_video):
                who = "There is no transport" if life.transport is None else "This transport carries no video"
                raise UnsupportedFeatureError(f"{who}. Use one that carries video, or leave it off", feature=feature)
            if feature == "cam":
                life.media.settings.cam = enable
                in_charge.enable_cam(enable)
            else:
                in_charge.enable_screen_share(enable)
        except UnsupportedFeatureError as error:
            has_publisher = transport is not None or life.media.is_held
            publish = life.media.publish if has_publisher else life.publish
            publish(RTVIEvent.UNSUPPORTED_FEATURE, fresh_copy(error))
            raise
