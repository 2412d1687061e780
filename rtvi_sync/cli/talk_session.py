"""An interactive conversation: sends the user's voice and lines, handles the keys, and shows both sides' words."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

from rtvi_sync import (
    BotReadyData,
    CloseInfo,
    DeviceError,
    DisconnectedError,
    Event,
    EventStream,
    RequestTimeoutError,
    RTVIClient,
    RTVIError,
    RTVIEvent,
)
from rtvi_sync.media import MediaDeviceInfo
from rtvi_sync.protocol.telephony import KEYS
from rtvi_sync.recording.transcript import EVENTS, Transcript, has_begun

from ..concurrency.clock import monotonic
from .arguments import describe_bot
from .console import Console, Key, Status
from .device_choice import next_device
from .notes import Notes, activity, clock, summary

# Seconds between two checks of values that change without an event.
_TICK = 0.05
# Seconds that a bot may take until it starts to answer.
_ANSWER_TIMEOUT = 10.0

_EVENT_TYPES = (
    *EVENTS,
    RTVIEvent.LLM_FUNCTION_CALL_IN_PROGRESS,
    RTVIEvent.ERROR,
    RTVIEvent.MESSAGE_ERROR,
    RTVIEvent.DEVICE_ERROR,
    RTVIEvent.LOCAL_AUDIO_LEVEL,
    RTVIEvent.REMOTE_AUDIO_LEVEL,
)


class TalkSession:
    """One conversation in one session. Create it before the session starts. Everything runs on one thread.

    Args:
        client: Client before the connection.
        console: The user's console, already entered.
        mic, speaker: Device names for a client without names.
        mic_ended: Function that returns whether the microphone has ended.
        mic_silence: Silence at the end of the microphone's audio, in seconds.
    """

    def __init__(
        self,
        client: RTVIClient,
        console: Console,
        *,
        mic: str,
        speaker: str,
        mic_ended: Callable[[], bool],
        mic_silence: float = 0.0,
    ) -> None:
        self._client = client
        self._console = console
        self._names = mic, speaker
        self._is_mic_ended = mic_ended
        self._mic_silence = mic_silence
        self._mic_ended = False
        self._transcript = Transcript()
        self._notes = Notes()
        self._levels = {RTVIEvent.LOCAL_AUDIO_LEVEL: -100.0, RTVIEvent.REMOTE_AUDIO_LEVEL: -100.0}
        self._typed: deque[str] = deque()
        self._last_tried: dict[Key, MediaDeviceInfo] = {}
        self._input_ended = False
        self._by_telephone = False
        self._has_refused = False  # True after a line that a telephone cannot send
        self._has_nothing_to_say = False  # True after the user was told so
        self._began_at = monotonic()
        self._said_at: float | None = None  # end of the user's last utterance or line
        self._answered = False  # True after the bot has answered it
        self._answered_at = -math.inf  # end of the last turn
        self._events: EventStream = client.events(*_EVENT_TYPES, timeout=_TICK)

    def run(self, connect: Callable[[], BotReadyData]) -> None:
        """Connect, and talk until the user or the bot ends the conversation.

        If the console is not interactive, each line waits for the answer to the one before, and the conversation ends
        after the last answer.

        Raises:
            RTVIError: The bot cannot be reached, the session was lost, or the bot ended it before it had answered all
                lines of a non-interactive console. Or a telephone can send none of these lines.
        """
        self._update_status("connecting ...")
        ready, transport = connect(), self._client.transport
        if transport is not None and not transport.carries_messages:
            self._by_telephone = True
            self._console.print_line(f"calling as {transport.name}")
        else:
            self._console.print_line(describe_bot(ready))
        self._began_at = monotonic()
        self._mic_ended = self._is_mic_ended()  # True without a microphone
        try:
            self._talk()
        finally:
            turns = self._client.turns()
            if self._console.interactive and turns:
                self._console.print_line(summary(turns, monotonic() - self._began_at), "faint")

    def _talk(self) -> None:
        while self._handle_input():
            try:
                self._handle_event(next(self._events))
            except RequestTimeoutError:
                pass
            except StopIteration:
                self._show_transcript(flush=True)
                self._report_end(self._events.ended or CloseInfo())
                return
            self._show_transcript()
            self._update_status(clock(monotonic() - self._began_at), activity(self._client.turns()))
        self._show_transcript(flush=True)

    # -- user input ---------------------------------------------------------------------------------------------------

    def _handle_input(self) -> bool:
        """Handle lines and keys. Return False to end the conversation."""
        while (item := self._console.poll()) is not None:
            if item is Key.END:
                self._input_ended = True
            elif isinstance(item, Key):
                self._press(item)
            elif item.strip():
                self._typed.append(item.strip())
        if self._console.interactive:
            while self._typed:
                self._send(self._typed.popleft())
            return not self._input_ended
        if not self._mic_ended and self._is_mic_ended():
            self._mic_ended = True
            self._note_said(self._mic_silence)
        # The first line does not wait for a greeting. The end does: a bot may still greet.
        if self._typed and (self._said_at is None or self._is_answered()):
            self._send(self._typed.popleft())
        all_sent = self._input_ended and self._mic_ended and not self._typed
        if all_sent and self._said_at is None and not self._has_nothing_to_say:
            self._has_nothing_to_say = True
            self._report_nothing_said()
        return not (all_sent and self._is_answered())

    def _report_nothing_said(self) -> None:
        if self._has_refused:
            raise RTVIError("Nothing was said: a telephone sends no text. Speak it: pass --mic an audio file")
        what = "key" if self._by_telephone else "line"
        self._console.print_line(f"There is nothing to say: no {what} was typed, and --mic names no audio file")

    def _note_said(self, ago: float = 0.0) -> None:
        self._said_at = max(self._said_at or 0.0, monotonic() - ago)
        self._look_for_answer()

    def _look_for_answer(self) -> None:
        is_answer = self._answered_at >= (self._said_at or 0.0)
        self._answered = is_answer and not any(turn.is_open for turn in self._client.turns())

    def _is_answered(self) -> bool:
        """Return whether the bot answered the last words, or did not start to within `_ANSWER_TIMEOUT`."""
        if self._answered:
            return True
        is_late = monotonic() > (self._said_at or self._began_at) + _ANSWER_TIMEOUT
        return is_late and not any(turn.is_open and has_begun(turn) for turn in self._client.turns())

    def _send(self, text: str) -> None:
        self._show_transcript(flush=True)
        if self._by_telephone and not KEYS.issuperset(text):
            self._has_refused = True
            self._console.print_line(f"Not sent, because a telephone sends only keys (0-9, * and #): {text}", "error")
            return
        self._note_said()  # before the send, because the answer may arrive during it
        try:
            if self._by_telephone:
                self._client.send_dtmf(text)
            else:
                self._client.send_text(text)
        except RTVIError as error:
            if self._console.interactive:
                self._console.print_line(str(error), "error")
            elif self._client.connected and not isinstance(error, DisconnectedError):
                raise
            else:
                self._typed.appendleft(text)  # the end of the session follows, has the reason, and counts the line
        else:
            self._console.print_utterance("you", f"(keys) {text}" if self._by_telephone else text)

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
            self._console.print_line(str(error), "error")

    def _change(
        self,
        key: Key,
        name: str,
        devices: Sequence[MediaDeviceInfo],
        selected: MediaDeviceInfo | None,
        update: Callable[[str], None],
    ) -> None:
        device = next_device(devices, self._last_tried.get(key, selected))
        if device is None:
            self._console.print_line(f"There is no other {name}")
        else:
            self._last_tried[key] = device  # if it is unusable, the next key press tries the one after it
            update(device.device_id)

    # -- events -------------------------------------------------------------------------------------------------------

    def _handle_event(self, event: Event) -> None:
        if event.type is RTVIEvent.BOT_LLM_STOPPED:
            self._show_transcript(flush=True)
        elif event.type is RTVIEvent.TURN_STARTED:
            self._answered = False
        elif event.type is RTVIEvent.TURN_ENDED:
            if self._client.connected:  # the end of a session also ends its turns, but is no answer
                self._answered_at = event.received_at
                self._look_for_answer()
        elif event.type in self._levels:
            self._levels[event.type] = event.data.dbfs
        elif event.type is RTVIEvent.DEVICE_ERROR:
            self._print_device_error(event.data)
        elif event.type in (RTVIEvent.ERROR, RTVIEvent.MESSAGE_ERROR):
            self._console.print_line(f"The bot reports an error: {event.data.message}", "error")

    def _print_device_error(self, error: DeviceError) -> None:
        """Print the errors of devices, without the advice for developers."""
        state = self._client.media_state
        statuses = {"mic": state.mic, "speaker": state.speaker}
        reasons = {str(statuses[kind].error or error) for kind in error.devices if kind in statuses} or {str(error)}
        for reason in sorted(reasons):
            self._console.print_line(f"{reason} (the conversation continues)", "error")

    def _show_transcript(self, *, flush: bool = False) -> None:
        turns = self._client.turns()
        if self._console.interactive:
            self._print_notes(self._notes.calls(turns))
        for line in self._transcript.update(turns, flush=flush):
            self._console.print_utterance(line.who, line.text)
        if self._console.interactive:
            self._print_notes(self._notes.ends(turns))

    def _print_notes(self, notes: Sequence[str]) -> None:
        for note in notes:
            self._console.print_line(f"     {note}", "faint")

    def _report_end(self, info: CloseInfo) -> None:
        """Raise an error or print the reason, if the client itself did not end the session.

        In a pipe, an end before the start of the last answer is an error, too.
        """
        if isinstance(info.error, RTVIError):
            raise info.failure()
        # Not `failure()`, whose text recommends connect().
        if not self._console.interactive and self._has_unanswered_line():
            raise DisconnectedError(f"{info.describe()}; not all lines were answered")
        if info.initiator != "server" or info.error is not None:
            raise DisconnectedError(info.describe())
        self._console.print_line(info.describe())

    def _has_unanswered_line(self) -> bool:
        typed = [turn for turn in self._client.turns() if turn.modality == "text"]
        return bool(self._typed) or any(not has_begun(turn) for turn in typed[-1:])

    def _update_status(self, state: str, activity: str = "") -> None:
        client, partial = self._client, self._transcript.unfinished
        mic, speaker = client.selected_mic, client.selected_speaker
        self._console.show_status(
            Status(
                partial=(partial.who, partial.text) if partial is not None else None,
                user=self._levels[RTVIEvent.LOCAL_AUDIO_LEVEL],
                bot=self._levels[RTVIEvent.REMOTE_AUDIO_LEVEL],
                muted=not client.is_mic_enabled,
                mic=mic.label if mic is not None else self._names[0],
                speaker=speaker.label if speaker is not None else self._names[1],
                state=state,
                activity=activity,
            )
        )
