"""A conversation that the user holds: his voice, his keys and his lines go to the bot, what both say is shown."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence

from rtvi_sync import (
    BotReadyData,
    CloseInfo,
    DeviceError,
    Event,
    EventStream,
    RequestTimeoutError,
    RTVIClient,
    RTVIError,
    RTVIEvent,
)
from rtvi_sync.media import MediaDeviceInfo
from rtvi_sync.recording.level import FLOOR
from rtvi_sync.recording.transcript import BOT_TEXTS, EVENTS, Line, Transcript

from . import bot_activity
from .bot_activity import SIGNS, Activity
from .bot_address import greeting_of
from .console import Console, Key, Status
from .device_choice import next_device

# How often what happens without an event is looked at.
_TICK = 0.05
# What is kept of them, whatever a bot sends.
_MOST_INTERRUPTIONS = 10_000

_TOLD = (
    *EVENTS,
    *SIGNS,
    RTVIEvent.USER_STARTED_SPEAKING,
    RTVIEvent.BOT_INTERRUPTED,
    RTVIEvent.ERROR,
    RTVIEvent.MESSAGE_ERROR,
    RTVIEvent.DEVICE_ERROR,
    RTVIEvent.LOCAL_AUDIO_LEVEL,
    RTVIEvent.REMOTE_AUDIO_LEVEL,
)


class Talk:
    """One conversation in one session. Make it before the session begins; everything happens on one thread.

    Args:
        client: not yet connected.
        console: where the user sits; entered.
        mic, speaker: what they are called where the client has no name for them.
        voice_ended: whether nothing more comes from the microphone.

    Attributes:
        interruptions: when the bot was interrupted.
    """

    def __init__(
        self, client: RTVIClient, console: Console, *, mic: str, speaker: str, voice_ended: Callable[[], bool]
    ) -> None:
        self.interruptions: deque[float] = deque(maxlen=_MOST_INTERRUPTIONS)
        self._client = client
        self._desk = console
        self._names = mic, speaker
        self._voice_ended = voice_ended
        self._voice_over = False
        self._transcript = Transcript()
        self._partial: Line | None = None
        self._bot = Activity()
        self._levels = {RTVIEvent.LOCAL_AUDIO_LEVEL: -100.0, RTVIEvent.REMOTE_AUDIO_LEVEL: -100.0}
        self._typed: deque[str] = deque()
        self._tried: dict[Key, MediaDeviceInfo] = {}
        self._no_more = False
        self._began = time.monotonic()
        self._said = -math.inf  # what has been said was finished then
        self._events: EventStream = client.events(*_TOLD, timeout=_TICK)

    def hold(self, connect: Callable[[], BotReadyData]) -> None:
        """Connect, and talk until somebody leaves.

        Where nobody sits at the console, each line waits until the bot has answered what was said before, and the
        conversation ends when there is nothing left to say and to hear.

        Raises:
            RTVIError: there is no bot, or the session was lost.
        """
        self._show("connecting ...")
        self._desk.line(greeting_of(connect()))
        self._began = time.monotonic()
        self._voice_over = self._voice_ended()  # there is none
        while self._goes_on():
            try:
                self._take(next(self._events))
            except RequestTimeoutError:
                pass
            except StopIteration:
                self._tell(self._transcript.end_turn())
                self._end(self._events.ended or CloseInfo())
                return
            self._show(_clock(time.monotonic() - self._began))
        self._tell(self._transcript.end_turn())

    # -- the user -----------------------------------------------------------------------------------------------------

    def _goes_on(self) -> bool:
        """Do what the user wants; False if he wants nothing more."""
        while (taken := self._desk.take()) is not None:
            if taken is Key.END:
                self._no_more = True
            elif isinstance(taken, Key):
                self._press(taken)
            elif taken.strip():
                self._typed.append(taken.strip())
        if self._desk.attended:
            while self._typed:
                self._send(self._typed.popleft())
            return not self._no_more
        if not self._voice_over and self._voice_ended():
            self._voice_over, self._said = True, time.monotonic()
        # A bot that has said nothing is not waited for, in the beginning. In the end it is: perhaps it greets.
        if self._typed and self._heard_out(self._said):
            self._send(self._typed.popleft())
        nothing_left = self._no_more and self._voice_over and not self._typed
        return not (nothing_left and self._heard_out(max(self._said, self._began)))

    def _heard_out(self, since: float) -> bool:
        """Whether the bot has answered what was said until then, or will not."""
        now = time.monotonic()
        return self._bot.over(now) if self._bot.since(since) else now > since + bot_activity.PATIENCE

    def _send(self, text: str) -> None:
        self._tell(self._transcript.end_turn())
        self._said = time.monotonic()
        try:
            self._client.send_text(text)
        except RTVIError as error:
            self._desk.line(str(error))
        else:
            self._desk.said("you", text)

    def _press(self, key: Key) -> None:
        client = self._client
        try:
            if key is Key.MUTE:
                client.enable_mic(not client.is_mic_enabled)
            elif key is Key.NEXT_MIC:
                self._change(key, "microphone", client.get_all_mics(), client.selected_mic, client.update_mic)
            elif key is Key.NEXT_SPEAKER:
                self._change(key, "speaker", client.get_all_speakers(), client.selected_speaker, client.update_speaker)
        except RTVIError as error:
            self._desk.line(str(error))

    def _change(
        self,
        key: Key,
        name: str,
        devices: Sequence[MediaDeviceInfo],
        selected: MediaDeviceInfo | None,
        update: Callable[[str], None],
    ) -> None:
        device = next_device(devices, self._tried.get(key, selected))
        if device is None:
            self._desk.line(f"There is no other {name}")
        else:
            self._tried[key] = device  # one that cannot be used is passed over the next time
            update(device.device_id)

    # -- the bot ------------------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        if event.type in SIGNS:
            self._bot.take(event)
        if event.type in EVENTS:
            line = self._transcript.add(event)
            self._tell(line)
            if line is None and event.type in BOT_TEXTS:
                self._partial = self._transcript.unfinished
        elif event.type in self._levels:
            self._levels[event.type] = event.data.dbfs
            if event.type is RTVIEvent.REMOTE_AUDIO_LEVEL and event.data.level * 32768 >= FLOOR:
                self._bot.last_heard = self._bot.silent_from = event.received_at
        elif event.type in (RTVIEvent.USER_STARTED_SPEAKING, RTVIEvent.BOT_STOPPED_SPEAKING):
            self._tell(self._transcript.end_turn())
        elif event.type is RTVIEvent.BOT_INTERRUPTED:
            self.interruptions.append(event.received_at)
        elif event.type is RTVIEvent.DEVICE_ERROR:
            self._tell_of_devices(event.data)
        elif event.type in (RTVIEvent.ERROR, RTVIEvent.MESSAGE_ERROR):
            self._desk.line(f"The bot reports an error: {event.data.message}")

    def _tell_of_devices(self, error: DeviceError) -> None:
        """Say what is wrong with devices, without the advice for programs."""
        state = self._client.media_state
        statuses = {"mic": state.mic, "speaker": state.speaker}
        reasons = {str(statuses[kind].error or error) for kind in error.devices if kind in statuses} or {str(error)}
        for reason in sorted(reasons):
            self._desk.line(f"{reason} (the conversation goes on)")

    def _tell(self, line: Line | None) -> None:
        if line is None:
            return
        if line.final:
            self._desk.said(line.who, line.text)
        self._partial = None if line.final else line

    def _end(self, info: CloseInfo) -> None:
        """The session has ended by itself."""
        if info.initiator != "server" or info.error is not None:
            raise info.failure()
        self._desk.line(info.describe())

    def _show(self, state: str) -> None:
        client, partial = self._client, self._partial
        mic, speaker = client.selected_mic, client.selected_speaker
        self._desk.show(
            Status(
                partial=(partial.who, partial.text) if partial is not None else None,
                user=self._levels[RTVIEvent.LOCAL_AUDIO_LEVEL],
                bot=self._levels[RTVIEvent.REMOTE_AUDIO_LEVEL],
                muted=not client.is_mic_enabled,
                mic=mic.label if mic is not None else self._names[0],
                speaker=speaker.label if speaker is not None else self._names[1],
                state=state,
            )
        )


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
