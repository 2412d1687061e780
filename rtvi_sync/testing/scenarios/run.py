"""One run of a scenario against a bot, from the first connection to the result."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from rtvi_sync.client.candidates import TransportName
from rtvi_sync.client.client import RTVIClient
from rtvi_sync.concurrency.clock import monotonic
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.latch import Latch
from rtvi_sync.errors import (
    ConnectionTimeoutError,
    DisconnectedError,
    InvalidTransportParamsError,
    MissingExtraError,
    RTVIError,
)
from rtvi_sync.media import NullSink, SilenceSource
from rtvi_sync.protocol.dialects import parse_version
from rtvi_sync.protocol.record import Record
from rtvi_sync.protocol.text import one_line
from rtvi_sync.protocol.validation import HEADERS, PATH, SECONDS, STRING, Rule
from rtvi_sync.recording.recording import Recording
from rtvi_sync.session.connect_request import TELEPHONY, BotURL
from rtvi_sync.session.event_stream import EventStream
from rtvi_sync.testing.scenarios.doors import Door, level_for, wants, wants_vad
from rtvi_sync.testing.scenarios.hooks import Hooks
from rtvi_sync.testing.scenarios.matching import FailureKind
from rtvi_sync.testing.scenarios.model import Scenario
from rtvi_sync.testing.scenarios.report import MetricResult, ScenarioFailure, ScenarioResult, ScenarioTurnResult
from rtvi_sync.testing.scenarios.scripted import MAX_EVENTS, ScriptedConversation
from rtvi_sync.testing.scenarios.simulated import SimulatedConversation
from rtvi_sync.testing.scenarios.stream import CLIENT_EVENTS, ScenarioEvent
from rtvi_sync.transports.eval import EvalTransport

_BOT: Final = Rule("a URL (a str) or an RTVIClient", lambda bot: isinstance(bot, (str, RTVIClient)), bool)


# The first version of RTVI whose bots report calls in the way that scenarios need.
_CALLS_SINCE: Final = (1, 2)
#: Seconds of waiting for a bot that doesn't listen yet, as in Pipecat.
PATIENCE: Final = 5.0
# Seconds between two attempts.
_PAUSE: Final = 0.25
# Suffixes of a recording's files, which its path may have.
_SUFFIXES: Final = (".jsonl", ".wav")
# Length limit of a failure in a recording, in characters.
_MAX_WHY: Final = 500


@attrs.frozen(kw_only=True, eq=False, repr=False)
class RunOptions(Record):
    """The options of a run. See `Scenario.run()`."""

    transport: TransportName = "auto"
    timeout: float = attrs.field(default=60.0, validator=SECONDS)
    connect_timeout: float = attrs.field(default=15.0, validator=SECONDS)
    token: str | None = attrs.field(default=None, validator=STRING.or_none, repr=False)
    headers: Mapping[str, str] | None = attrs.field(default=None, validator=HEADERS.or_none, repr=False)
    record: str | os.PathLike[str] | None = attrs.field(default=None, validator=PATH.or_none)


class ScenarioRun:
    """One run of a scenario. One thread runs it; any thread may call `abort()`.

    Args:
        scenario: Scenario to run.
        bot: URL of the bot, or a connected client, whose session stays open.
        hooks: Functions of the application.
        options: Options of the run.
        patience (seconds): Limit of the wait for a bot that doesn't listen yet.

    Raises:
        TypeError, ValueError: An argument is invalid.
        InvalidTransportParamsError: The URL cannot be a bot's, or not by this transport.
        MissingExtraError: The transport needs a library that is not installed.
    """

    def __init__(
        self,
        scenario: Scenario,
        bot: str | RTVIClient,
        hooks: Hooks,
        options: RunOptions,
        patience: float = PATIENCE,
    ) -> None:
        _BOT.check(bot=bot)
        self._patience = min(patience, options.connect_timeout)
        self._scenario = scenario
        self._hooks = hooks
        self._options = options
        self._speaks = scenario.judge.modality == "audio"
        self._url = bot if isinstance(bot, str) else None
        if self._url is None and options.record is not None:
            raise ValueError("record is for a session of the run's own; call record() of the client, which has one")
        self._client: RTVIClient = bot if isinstance(bot, RTVIClient) else self._make_client(bot)
        # State of the current attempt.
        self._attempt = 1
        self._began = monotonic()
        self._door = ""
        self._seen: deque[ScenarioEvent] = deque(maxlen=MAX_EVENTS)
        self._said: Sequence[tuple[str, str]] = ()
        self._is_aborted = False

    def abort(self) -> None:
        """End the run soon, with the session if it is the run's own. The result is then meaningless."""
        self._is_aborted = True
        if self._url is not None:
            self._client.close()

    # -- the session --------------------------------------------------------------------------------------------------

    def _make_client(self, url: str) -> RTVIClient:
        scenario, options = self._scenario, self._options
        is_phone = options.transport in TELEPHONY
        speaks, user_speaks = self._speaks or is_phone, scenario.user.modality == "audio" or is_phone
        devices: dict[str, Any] = {"text_only": True}
        if speaks or user_speaks:
            devices = {"mic": SilenceSource() if user_speaks else False, "speaker": NullSink() if speaks else False}
        devices["connect_timeout"] = options.connect_timeout
        if options.transport != "eval":
            return RTVIClient.for_url(
                url, transport=options.transport, token=options.token, headers=options.headers, **devices
            )
        hears = self._hooks.transcribe is not None and wants(scenario, "response")
        is_socket = BotURL.parse(url).ws_url is not None
        transport = EvalTransport(
            token=options.token,
            headers=options.headers if is_socket else None,
            skip_tts=not self._speaks,
            capture_bot_audio=self._speaks and (hears or options.record is not None or scenario.simulation is not None),
            capture_bot_images=wants(scenario, "image"),
        )
        if scenario.trigger_disconnect and is_socket:
            url += ("&" if "?" in url else "?") + "trigger_disconnect=true"
        headers = None if is_socket else options.headers
        return RTVIClient.for_url(url, transport=transport, headers=headers, **devices)

    def run(self) -> ScenarioResult:
        """Run the scenario; repeat a simulated one for its number of runs, until one doesn't pass."""
        if self._url is None:
            self._client._life.session().check_ready()
            self._began = monotonic()
            with self._listening() as events:
                return self._converse(events)
        attempts = self._scenario.simulation.runs if self._scenario.simulation is not None else 1
        while True:
            result = self._run_once()
            if self._attempt == attempts or result.verdict != "passed" or self._is_aborted:
                return result
            self._attempt += 1
            self._client = self._make_client(self._url)

    def _run_once(self) -> ScenarioResult:
        """Run the scenario in its own session."""
        self._began = monotonic()
        if self._options.transport != "auto" and (obstacle := self._obstacle()) is not None:
            return self._result(reason=obstacle)
        recording = None
        with contextlib.closing(self._client):
            if self._options.record is not None:
                path = Path(self._options.record)
                if self._attempt > 1:
                    base = path.with_suffix("") if path.suffix in _SUFFIXES else path
                    path = base.with_name(f"{base.name}.run{self._attempt}")
                recording = self._client.record(path, overwrite=True)
            with contextlib.nullcontext() if recording is None else contextlib.closing(recording):
                result = self._run_session()
                if recording is not None and result.verdict == "failed":
                    recording.mark(f"The scenario failed: {one_line(str(result.failures[0]), _MAX_WHY)}")
        if recording is None:
            return result
        rows = [path for path in recording.paths if path.suffix == ".jsonl"] if result.verdict != "passed" else []
        pages = [path.with_suffix(".html") for path in rows]
        for path, page in zip(rows, pages, strict=True):
            Recording.load(path).report(page)
        return attrs.evolve(result, recording=(*pages, *recording.paths))

    def _run_session(self) -> ScenarioResult:
        patience = Deadline(self._patience)
        while True:
            with self._listening() as events:  # a failed attempt to connect ends the stream
                try:
                    self._client.connect()
                except (InvalidTransportParamsError, MissingExtraError):
                    raise
                except RTVIError as error:
                    failure = error
                else:
                    result = self._converse(events)
                    self._cancel_bot()
                    return result
            if self._is_aborted or patience.expired or not _is_refused(failure):
                return self._result(failure=_connect_failure(failure))
            Latch().wait(Deadline(patience.at_most(_PAUSE)))

    def _listening(self) -> EventStream[Any]:
        return self._client.events(*CLIENT_EVENTS)

    def _cancel_bot(self) -> None:
        """End the bot, even if it would stay when its client leaves."""
        transport = self._client.transport
        if isinstance(transport, EvalTransport):
            with contextlib.suppress(RTVIError):
                transport.cancel()

    def _obstacle(self) -> str | None:
        hooks, simulation = self._hooks, self._scenario.simulation
        if self._url is None and simulation is not None and simulation.runs > 1:
            return f"'runs: {simulation.runs}' needs a session for each run: pass the URL in place of a client"
        return self._find_door().obstacle(
            self._scenario, has_tts=hooks.tts is not None, has_next_line=hooks.next_line is not None
        )

    def _find_door(self, version: tuple[int, int] | None = None) -> Door:
        """Return the door to a bot of this RTVI version; None if unknown."""
        transport = self._client.transport
        assert transport is not None, "a client for a URL, or a connected one, has a transport"
        is_eval = isinstance(transport, EvalTransport)
        self._door = transport.start_name if transport.start_name in TELEPHONY else transport.name
        return Door(
            name=self._door,
            is_eval=is_eval,
            carries_messages=transport.carries_messages,
            shows_images=isinstance(transport, EvalTransport) and transport.captures_bot_images,
            hears=self._hooks.transcribe is not None and self._speaks,
            tells_calls=version is None or version >= _CALLS_SINCE,
        )

    def _converse(self, events: EventStream[Any]) -> ScenarioResult:
        """Run the scenario in an open session."""
        if (obstacle := self._obstacle()) is not None:
            return self._result(reason=obstacle)
        version = parse_version(self._client._life.session().engine.version)
        door, scenario = self._find_door(version), self._scenario
        transport = self._client.transport
        if isinstance(transport, EvalTransport):
            with contextlib.suppress(DisconnectedError):  # the first turn reports the end of the session
                self._set_up(transport)
        if scenario.simulation is not None:
            talk = SimulatedConversation(self._client, scenario, door, self._hooks).run()
            self._said = talk.lines
            return self._result(metrics=talk.metrics, failure=talk.failure, reason=talk.reason)
        conversation = ScriptedConversation(self._client, scenario, events, door, self._hooks, self._options.timeout)
        self._seen, self._said = conversation.seen, conversation.said
        with contextlib.closing(conversation):
            turns = conversation.run()
        return self._result(turns=turns)

    def _set_up(self, transport: EvalTransport) -> None:
        """Configure the bot for the scenario's needs."""
        level, has_vad = level_for(self._scenario), wants_vad(self._scenario)
        has_markers = wants(self._scenario, "llm_marker")
        if level is not None or has_vad or has_markers:
            transport.configure(level, vad_user_speaking=has_vad or None, llm_markers=has_markers or None)
        if self._scenario.context:
            transport.seed_context(self._scenario.context)

    def _result(
        self,
        *,
        turns: Sequence[ScenarioTurnResult] | None = None,
        metrics: Sequence[MetricResult] = (),
        failure: ScenarioFailure | None = None,
        reason: str = "",
    ) -> ScenarioResult:
        scenario = self._scenario
        if turns is None:
            turns = [ScenarioTurnResult(index=index) for index in range(len(scenario.turns))]
        return ScenarioResult(
            name=scenario.full_name,
            path=scenario.path,
            kind=scenario.kind,
            door=self._door,
            turns=turns,
            metrics=metrics,
            failure=failure,
            reason=reason,
            attempt=self._attempt,
            duration_ms=_milliseconds(self._began),
            events=[_seen_record(event, self._began) for event in self._seen],
            conversation=tuple(self._said),
        )


def run_scenario(
    scenario: Scenario, bot: str | RTVIClient, hooks: Mapping[str, Any], options: Mapping[str, Any]
) -> ScenarioResult:
    """Run a scenario; see `Scenario.run()`.

    Args:
        scenario: Scenario to run.
        bot: URL of the bot, or a connected client.
        hooks: Arguments of `Hooks`.
        options: Arguments of `RunOptions`.
    """
    return ScenarioRun(scenario, bot, Hooks(**hooks), RunOptions(**options)).run()


def patience_after(result: ScenarioResult) -> float:
    """Return the patience of the next run: none if the last one has waited for the bot in vain."""
    is_down = result.failure is not None and result.failure.kind == "connect_failed"
    return 0.0 if is_down else PATIENCE


def _is_refused(error: BaseException | None) -> bool:
    """Return whether the connection was refused, because the bot may still be starting."""
    while error is not None:
        if isinstance(error, ConnectionRefusedError):
            return True
        error = error.__cause__
    return False


def _connect_failure(error: RTVIError) -> ScenarioFailure:
    """Return the failure of a run that did not reach the bot."""
    kind: FailureKind = "connect_failed"
    if isinstance(error, ConnectionTimeoutError) and error.phase == "bot-ready":
        kind = "handshake_timeout"
    elif isinstance(error, DisconnectedError):
        kind = "closed_before_ready"
    where = "<connect>" if kind == "connect_failed" else "<bot-ready>"
    return ScenarioFailure(-1, -1, where, kind, str(error))


def _milliseconds(since: float) -> int:
    return int((monotonic() - since) * 1000)


def _seen_record(event: ScenarioEvent, began: float) -> dict[str, Any]:
    """Return an event in the format of Pipecat's results."""
    more = {"text": event.text, "name": event.name, "args": event.args, "kind": event.marker}
    given = {key: value for key, value in more.items() if value not in ("", None)}
    return {"type": event.event, **given, "at": round(event.at - began, 3)}
