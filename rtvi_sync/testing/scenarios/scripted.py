"""A script in a session: it sends the user's input and checks the expectations."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from rtvi_sync.client.client import RTVIClient
from rtvi_sync.concurrency.clock import monotonic
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.latch import Latch
from rtvi_sync.errors import (
    BotNotReadyError,
    DeviceError,
    DisconnectedError,
    RequestTimeoutError,
    UnsupportedFeatureError,
)
from rtvi_sync.events import Event, RTVIEvent
from rtvi_sync.media import BytesSource
from rtvi_sync.media.base import AudioSource
from rtvi_sync.media.tracks import AudioTrack
from rtvi_sync.protocol.dialects import parse_version
from rtvi_sync.protocol.text import one_line, raised
from rtvi_sync.protocol.validation import STRING
from rtvi_sync.session.event_stream import EventStream
from rtvi_sync.testing.scenarios.doors import Door, wants
from rtvi_sync.testing.scenarios.hooks import HookError, Hooks, ask_judge, call_hook, speech_of
from rtvi_sync.testing.scenarios.matching import (
    AskJudge,
    AwaitEvent,
    ExpectationMatcher,
    Judged,
    Match,
    Steps,
)
from rtvi_sync.testing.scenarios.media import MAX_SPEECH, read_recording
from rtvi_sync.testing.scenarios.model import Expectation, Scenario, ScenarioTurn, SendAfter, SpokenPause
from rtvi_sync.testing.scenarios.report import (
    ExpectationResult,
    ScenarioFailure,
    ScenarioTurnResult,
    TurnVerdict,
    worst,
)
from rtvi_sync.testing.scenarios.stream import ScenarioEvent, ScenarioStream
from rtvi_sync.transports.eval import EvalTransport

if TYPE_CHECKING:
    from rtvi_sync.conversation.ask import Question
    from rtvi_sync.media.tracks import TrackFrames

#: Longest wait of a send in seconds, until the bot is silent, or until the event before it.
QUIET_LIMIT: Final = 30.0
SEND_AFTER_LIMIT: Final = 30.0
# Seconds of audio that may precede the report of the bot's speech, and the limit of stored audio.
_LEAD: Final = 1.0
_KEPT_SOUND: Final = 600.0
#: Events of the bot that a result contains.
MAX_EVENTS: Final = 2_000
# The first protocol version in which Pipecat sends user-input.
_USER_INPUT_SINCE: Final = (2, 2)


class ScriptedConversation:
    """The turns of a script in a session. One thread uses it.

    Args:
        client: Connected client.
        scenario: Scripted scenario.
        events: `CLIENT_EVENTS` of the client, from before the start of the session if the run has its own.
        door: Door to the bot.
        hooks: Hooks of the run.
        timeout: Limit in seconds for an expectation without its own.

    Attributes:
        seen: Events of the bot.
        said: Lines before the current turn, as pairs of speaker ("user" or "bot") and text.
    """

    def __init__(
        self,
        client: RTVIClient,
        scenario: Scenario,
        events: EventStream[Any],
        door: Door,
        hooks: Hooks,
        timeout: float,
    ) -> None:
        self._client = client
        self._scenario = scenario
        self._events = events
        self._door = door
        self._hooks = hooks
        self._speaks = scenario.judge.modality == "audio"
        version = parse_version(client._life.session().engine.version)
        self._stream = ScenarioStream(
            bot_speaks=self._speaks,
            has_user_input=version is None or version >= _USER_INPUT_SINCE,
            tells_model=door.carries_messages,
        )
        self._matcher = ExpectationMatcher(
            self._stream,
            default_ms=round(timeout * 1000),
            has_judge=hooks.judge is not None,
            withholds_calls=not door.is_eval,
        )
        self._question: Question | None = None
        self._replies: list[str] = []  # since the last send
        self._speech_began: float | None = None
        self._sound = self._listen() if door.hears and wants(scenario, "response") else None
        self.seen: deque[ScenarioEvent] = deque(maxlen=MAX_EVENTS)
        self.said: list[tuple[str, str]] = []

    def close(self) -> None:
        """Unmute the client's microphone again."""
        if self._question is not None:
            self._question.close()
        if self._sound is not None:
            self._sound.close()

    def _listen(self) -> TrackFrames[Any] | None:
        track = self._client.tracks().bot.audio
        return track.frames(buffer=_KEPT_SOUND) if isinstance(track, AudioTrack) else None

    def run(self) -> list[ScenarioTurnResult]:
        """Run the turns, until one fails if the scenario stops on failures."""
        turns = [ScenarioTurnResult(index=index) for index in range(len(self._scenario.turns))]
        for index, turn in enumerate(self._scenario.turns):
            began = monotonic()
            result = self._run_turn(turn, index)
            turns[index] = result = attrs.evolve(result, duration_ms=round((monotonic() - began) * 1000))
            if result.reason or (result.verdict == "failed" and self._scenario.stop_on_failure):
                break
        return turns

    def _run_turn(self, turn: ScenarioTurn, index: int) -> ScenarioTurnResult:
        """Send the user's input, and check the expectations."""
        matches: list[Match] = []
        self._stream.begin_turn()
        try:
            failure = self._await_moment(turn, index)
            if failure is not None:
                return ScenarioTurnResult(index=index, verdict="failed", failure=failure)
            self._send(turn)
            sent_at = monotonic()
            later: list[tuple[int, Expectation, str]] = []
            for expectation in turn.expect:
                gap = self._door.gap(expectation.event)
                if gap is not None and (gap[0] == "never" or expectation.absent):
                    matches.append(Match(verdict="unsupported", reason=gap[1]))
                elif gap is not None:
                    later.append((len(matches), expectation, gap[1]))
                    matches.append(Match(verdict="unsupported", reason=gap[1]))
                else:
                    matches.append(self._meet(self._matcher.match(expectation, sent_at, len(matches))))
                if matches[-1].ends_turn:
                    break
            for position, expectation, why in later:
                matches[position] = self._meet(self._matcher.answer_now(expectation, why))
        except HookError as error:
            failure = ScenarioFailure(index, -1, f"<{error.hook}>", "error", str(error))
            return _turn_result(turn, index, matches, failure)
        except DeviceError as error:
            return _turn_result(turn, index, matches, ScenarioFailure(index, -1, "<audio>", "error", str(error)))
        except UnsupportedFeatureError as error:
            return attrs.evolve(_turn_result(turn, index, matches, None), verdict="unsupported", reason=str(error))
        return _turn_result(turn, index, matches, None)

    # -- before the send ----------------------------------------------------------------------------------------------

    def _await_moment(self, turn: ScenarioTurn, index: int) -> ScenarioFailure | None:
        """Wait for the start of the turn; return the failure if it never starts."""
        self._drain()
        if turn.send_after is not None:
            return self._await_event(turn.send_after, index)
        if turn.user is not None or turn.dtmf is not None:
            self._await_silence()
        elif index > 0 and self._stream.is_bot_speaking:
            self._await_silence()
            self._stream.observe(monotonic())
        return None

    def _await_silence(self) -> None:
        until = monotonic() + QUIET_LIMIT
        while self._stream.is_bot_speaking and self._take_one(until):
            pass

    def _await_event(self, after: SendAfter, index: int) -> ScenarioFailure | None:
        delay = after.delay_ms / 1000
        if after.event is None:
            self._pass_time(monotonic() + delay)
            return None
        until = monotonic() + SEND_AFTER_LIMIT
        while (seen_at := self._stream.latest.get(after.event)) is None:
            if self._stream.has_ended:
                reason = f"{self._stream.ended_by} before {after.event} came, after which the turn is sent"
                return ScenarioFailure(index, -1, after.event, "bot_ended", self._with_error(reason))
            if not self._take_one(until):
                reason = f"{after.event}, after which the turn is sent, did not come within {SEND_AFTER_LIMIT:g} s"
                reason += self._stream.why_missing(after.event)
                return ScenarioFailure(index, -1, after.event, "send_after_timeout", self._with_error(reason))
        self._pass_time(seen_at + delay)
        return None

    def _pass_time(self, until: float) -> None:
        """Wait until a moment, and handle events during the wait."""
        while self._take_one(until):
            if self._stream.has_ended:
                Latch().wait(Deadline(max(0.0, until - monotonic())))
                return

    # -- the send -----------------------------------------------------------------------------------------------------

    def _send(self, turn: ScenarioTurn) -> None:
        """Send the user's input of a turn."""
        transport = self._client.transport
        if turn.image is not None and isinstance(transport, EvalTransport):
            with contextlib.suppress(DisconnectedError):
                try:
                    transport.set_user_image(turn.image)
                except OSError as error:
                    raise HookError("image", raised(error)) from None
        if turn.user is None and turn.dtmf is None:
            return
        said = turn.user if turn.user is not None else f"(DTMF keypad input: {turn.dtmf})"
        given = self._spoken(turn) if self._scenario.user.modality == "audio" and turn.user is not None else turn.user
        self._finish_speech()
        self._drain()
        self._stream.drop()
        began = monotonic()  # a bot may answer before the send returns
        try:
            if given is None:
                self._client.send_dtmf(turn.dtmf or "")
            else:
                self._utter(given)
        except (BotNotReadyError, DisconnectedError):
            self._drain()  # the session has ended: the expectations report it
        self._note_replies()
        self.said.append(("user", said))
        self._stream.sent(began)

    def _finish_speech(self) -> None:
        """Finish the user's speech, and unmute the microphone again."""
        question = self._question
        if question is None:
            return
        until = monotonic() + MAX_SPEECH
        while question.is_speaking and not question.all_sent and not self._stream.has_ended:
            if monotonic() >= until:
                break
            self._take_one(min(until, monotonic() + 0.05))
        question.close()
        self._question = None

    def _utter(self, given: str | AudioSource) -> None:
        """Type a text, or start speaking the audio of a source."""
        session = self._client._life.session()
        session.check_ready()
        speaks = self._speaks or not isinstance(given, str)
        try:
            self._ask(given, speaks)
        except UnsupportedFeatureError:
            if speaks:
                raise
            self._ask(given, True)  # an older bot, which cannot answer in text only

    def _ask(self, given: str | AudioSource, speaks: bool) -> None:
        session = self._client._life.session()
        self._question = self._client._question(given, session, audio_response=speaks, sample_rate_hz=None)
        self._question.ask(Deadline(QUIET_LIMIT))

    def _spoken(self, turn: ScenarioTurn) -> AudioSource:
        """Return the user's words in a turn as audio."""
        if turn.audio is not None:
            return read_recording(turn.audio)
        parts: Sequence[str | SpokenPause] = turn.parts or (turn.user or "",)
        voices = {part: self._synthesize(part) for part in parts if isinstance(part, str)}
        rates = {rate for _, rate in voices.values()}
        if len(rates) > 1:
            raise HookError("tts", f"it returned speech of different sample rates: {sorted(rates)}")
        rate = rates.pop()
        pcm = b"".join(
            voices[part][0] if isinstance(part, str) else bytes(2 * (rate * part.pause_ms // 1000)) for part in parts
        )
        return BytesSource(pcm, rate)

    def _synthesize(self, text: str) -> tuple[bytes, int]:
        """Return a text as speech."""
        tts = self._hooks.tts
        assert tts is not None, "the door requires it"
        return call_hook("tts", lambda: speech_of(tts(text)))

    # -- received events -----------------------------------------------------------------------------------------------

    def _meet(self, steps: Steps) -> Match:
        """Supply a matcher with its needs, until it has an outcome."""
        reply: object = None
        while True:
            try:
                need = steps.send(reply)
            except StopIteration as done:
                match: Match = done.value
                if match.verdict == "failed":
                    return attrs.evolve(match, reason=self._with_error(match.reason))
                return match
            if isinstance(need, AwaitEvent):
                self._take_one(need.until)
                reply = monotonic()
            else:
                reply = self._judge(need)
                self._drain()

    def _with_error(self, reason: str) -> str:
        """Return the reason of a failure with the error that the bot itself reported in the turn."""
        error = self._stream.error
        return f"{reason}. The bot reported: {one_line(error)}" if error else reason

    def _drain(self) -> None:
        """Handle all waiting events."""
        while not self._stream.has_ended and self._take_one(-math.inf):
            pass

    def _take_one(self, until: float) -> bool:
        """Handle the next event, or the end; return False if neither arrives in time."""
        if self._stream.has_ended:
            Latch().wait(Deadline(max(0.0, until - monotonic())))
            return False
        try:
            event = self._events.next_before(Deadline(max(0.0, until - monotonic())))
        except RequestTimeoutError:
            return False
        if event is None:
            self._transcribe(monotonic())
            ended = self._events.ended
            self._stream.end(is_lost=ended is not None and ended.initiator == "network")
        else:
            self._take(event)
        return True

    def _take(self, event: Event[Any]) -> None:
        if event.type is RTVIEvent.BOT_STARTED_SPEAKING:
            self._speech_began = event.received_at
        found = self._stream.feed(event)
        if found is not None:
            self._keep(found)
        if event.type in (RTVIEvent.BOT_STOPPED_SPEAKING, RTVIEvent.BOT_INTERRUPTED):
            self._transcribe(event.received_at)

    def _keep(self, event: ScenarioEvent) -> None:
        self.seen.append(event)
        if event.event == ("response" if self._sound is not None else "llm_response") and event.text.strip():
            self._replies.append(event.text.strip())

    def _transcribe(self, stopped: float) -> None:
        """Transcribe the bot's speech until a moment."""
        began, self._speech_began = self._speech_began, None
        if began is None or self._sound is None:
            return
        frames = [frame for frame in self._sound.take() if began - _LEAD <= frame.timestamp]
        if not frames:
            return
        rate = frames[-1].sample_rate_hz
        pcm = b"".join(frame.pcm for frame in frames if frame.sample_rate_hz == rate)
        assert self._hooks.transcribe is not None, "the door requires it"
        text = call_hook("transcribe", self._hooks.transcribe, pcm, rate)
        call_hook("transcribe", STRING.check_one, "what transcribe returns", text)
        heard = self._stream.hear(text, began, max(stopped, monotonic()))
        if heard is not None:
            self._keep(heard)

    # -- judging ------------------------------------------------------------------------------------------------------

    def _note_replies(self) -> None:
        if self._replies:
            self.said.append(("bot", " ".join(self._replies)))
            self._replies = []

    def _judge(self, need: AskJudge) -> Judged:
        assert self._hooks.judge is not None, "a matcher without a judge asks for nothing"
        return ask_judge(self._hooks.judge, need, self.said)


def _turn_result(
    turn: ScenarioTurn, index: int, matches: Sequence[Match], failure: ScenarioFailure | None
) -> ScenarioTurnResult:
    results = [
        ExpectationResult(
            index=number,
            event_name=expectation.event,
            verdict=match.verdict,
            kind=match.kind,
            reason=match.reason,
            matched=match.matched,
        )
        for number, (expectation, match) in enumerate(zip(turn.expect, matches, strict=False))
    ]
    verdict: TurnVerdict = "failed" if failure is not None else worst(each.verdict for each in results)
    return ScenarioTurnResult(index=index, verdict=verdict, expectations=results, failure=failure)
