"""One session: from the first step of an attempt to the last event after its end.

| phase | entered by | on |
|---|---|---|
| connecting | `Session()` | the thread of `connect()`, or the reconnect thread |
| open | `opened()` | the connect thread |
| ready | `_become_ready()` | the thread that delivers messages, or the connect thread |
| closing | `End.run()`, soon after `end()`, which any thread may call | the close thread |
| announced, closed, drained | the steps of `End` | the same |

The close thread is the thread of the call that waits for the end, if that is a thread of the package. Otherwise it is a
new thread. At the exit of the interpreter it is the exiting thread.

A session is used once. Late results of an abandoned attempt reach an ended session, and have no effect. The session
refers to the client and its handlers only weakly. So a client that is dropped while connected can be collected, and its
session is torn down. docs/background/threads.md draws the life cycle.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import attrs

from ..concurrency.abort import AbortController, AbortSignal
from ..concurrency.clock import monotonic
from ..concurrency.deadline import Deadline
from ..concurrency.descriptors import closed_error
from ..concurrency.future import Future
from ..concurrency.latch import Latch, Notifier, must_not_block
from ..concurrency.lifecycle import (
    NO_THREAD_PAUSE,
    fork_generation,
    is_exiting,
    log_stack_of,
    register_for_exit,
    unregister_for_exit,
)
from ..concurrency.lock import new_lock
from ..concurrency.logs import package_logger
from ..concurrency.pool_task import PoolTask, current_task
from ..concurrency.runtime import Runtime, acquire_runtime
from ..concurrency.serial_queue import Item
from ..errors import (
    BotNotReadyError,
    DisconnectedError,
    InvalidTransportParamsError,
    ProtocolError,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIError,
    StartBotError,
    TransportStartError,
    UnsupportedFeatureError,
    WouldDeadlockError,
    fresh_copy,
)
from ..events import RTVIEvent
from ..media.media import Media
from ..messages import BotReadyData, RTVIMessage
from ..net.urls import printable
from ..protocol import engine as protocol
from ..protocol import envelope
from ..protocol.engine import about_this_client
from ..protocol.sent_text import SAYING
from ..protocol.states import BY_CLIENT, CloseInfo, TransportState
from ..protocol.text import raised
from ..transports.base import Inbound, Transport, TransportOptions
from .event_bus import EventBus, EventPublisher
from .event_stream import forked_error
from .function_calls import CALL_EVENTS, FunctionCalls

if TYPE_CHECKING:
    from ..client.recorder import Recorder
    from ..conversation.follow import ConversationTracker, SessionFollower

logger: logging.Logger = package_logger(__name__)

# The session that each transport serves, by the transport's identity, because two clients must not share one. The dict
# keeps live sessions alive; nothing else may hold them strongly.
_sessions_of_transports: dict[int, Session] = {}

# An additional explanation of a bot's silence.
_SILENCE = {
    # Seen: Pipecat 0.0.73 and 0.0.108.
    "action": " If the action has failed, see the bot's log, and reconnect: the bot may answer no further one.",
    "client-message": " A Pipecat bot answers only messages that its code handles (docs/guides/messages.md).",
}


class Phase(IntEnum):
    """How far a session is. It only moves forward, and may skip phases: a failed attempt goes from 0 to `CLOSING`."""

    CONNECTING = 0
    OPEN = 1  # the transport is open
    READY = 2  # the bot is ready: `bot` is set
    CLOSING = 3  # the steps of the end run
    ANNOUNCED = 4  # the state says that the session is ending, if it said before that there was one
    CLOSED = 5  # the transport is closed, every waiting call has failed, and another session may start
    DRAINED = 6  # the last event was delivered and the session's threads have ended, or the limit has passed


class SessionOwner(Protocol):
    """The operation that makes a session, and decides whether another one follows. On the close thread."""

    def after(self, session: Session) -> bool:
        """Whether another session or attempt follows the ending `session`. Called once."""

    def drained(self, session: Session) -> None:
        """Start the replacement of `session`, which was ready and has ended completely."""


class Session:
    """One attempt to connect and the session that results.

    Args:
        transport: Carries the session. No other session may use it until this one is closed.
        bus: The client's event bus.
        media: The client's devices.
        deadline: Limit of the attempt.
        conversation: Follows the turns of the client's sessions. None: turns are not followed.
        owner: Decides whether another session follows. None: none does.
        in_connect: True: an attempt of a call of `connect()`, which may make another one if it fails. False: it
            replaces a lost session.
        is_one_of_several: Whether the same call may make another attempt, which gets the open devices. The session is
            published as connected only when its bot is ready.
        needs_devices: Whether a missing device that was named by its id ends the attempt; else the session continues
            without it.

    Raises:
        InvalidTransportParamsError: The transport serves another session.
    """

    # Mutable state. `_lock` guards `phase`, `_info` and `_early_ready`: the thread that moves the phase first takes the
    # next step. Any thread of the package may hold it, for an assignment. It is re-entrant, because a finalizer may end
    # the session during the assignment. `_order` guards no data. It is held while the follower notes a message and the
    # transport takes it, so that both get the messages in the same order. It is re-entrant, because finalizers and
    # signal handlers may send. All other attributes are changed in single steps. Only the thread that delivers messages
    # changes `messages_received` and `_last_moment`; there is one such thread at a time.

    def __init__(
        self,
        transport: Transport,
        bus: EventBus,
        media: Media,
        deadline: Deadline,
        *,
        conversation: ConversationTracker | None = None,
        owner: SessionOwner | None = None,
        in_connect: bool = False,
        is_one_of_several: bool = False,
        needs_devices: bool = True,
    ) -> None:
        self.transport: Transport = transport
        self.media: Media = media
        self._owner = owner
        self.in_connect: bool = in_connect
        self._is_one_of_several = is_one_of_several
        self._needs_devices = needs_devices
        #: How far the session is.
        self.phase: Phase = Phase.CONNECTING
        # Notified when the phase has moved, the second one only by the last phase. `disconnect()` waits for the last
        # phase alone, and should not wake for the others.
        self._moved, self._drained = Notifier(), Notifier()
        self._generation = fork_generation()
        # The comment at the head of the class explains both.
        self._lock = new_lock()
        self._order = new_lock()
        # -- connecting
        #: The attempt to connect, on a thread of its own.
        self.connecting: PoolTask | None = None
        #: The transport has been told of this session, and must be told of later changes.
        self.introduced: bool = False
        #: The ready bot's description of itself. None before.
        self.bot: BotReadyData | None = None
        self._early_ready: protocol.Ready | None = None  # bot-ready, if it arrives before the transport is open
        # -- messages
        self.engine: protocol.Engine = protocol.Engine(about_this_client())
        self._conversation = conversation
        #: Takes the session's events, once the bot is ready. None before, and if turns are not followed.
        self.follower: SessionFollower | None = None
        #: Notes the session's events for recordings. None: the client is not recorded.
        self.recorder: Recorder | None = None
        self._waiting: list[AbortController] = []  # of the requests beside the session
        # By thread: each counts its own messages, so that no sending thread holds a lock.
        self._sent: defaultdict[int, int] = defaultdict(int)
        self.messages_received: int = 0
        self._last_moment = -math.inf
        # -- the end
        self._info: CloseInfo | None = None
        self._close_task: PoolTask | None = None
        self._closes_transport = False  # the transport was told of this session, and must be told of its end
        self._transport_deadline: Deadline | None = None
        #: The application has ended the session, or requested the bot to leave, so the end is not a loss.
        self.nothing_follows: bool = False
        #: Another session or attempt follows. Known once the session is closed.
        self.follows: bool = False

        other = _sessions_of_transports.setdefault(id(transport), self)
        if other.in_other_process and not other._closes_transport:  # forked before the transport was told of `other`
            _sessions_of_transports[id(transport)] = self
        elif other is not self:
            raise InvalidTransportParamsError(
                f"The {transport.name} transport serves a session of another client; give each client its own"
            )
        try:
            self.runtime: Runtime = acquire_runtime()
            #: The number of the session, counted from 1 for each client.
            self.number: int = bus.streams.start_session()
            self.publisher: EventPublisher = EventPublisher(bus, self.runtime.workers, on_overflow=self._overflow)
            self.functions: FunctionCalls = FunctionCalls(self.publisher, self.runtime.workers, self._send_result)
            #: Abandons the attempt to connect.
            self.abort: AbortController = AbortController(
                deadline, lambda: StartBotError("The connect request was aborted")
            )
            self.abort.signal._on_abort(self._aborted)
            register_for_exit(self)
            self.runtime.io.on_end.add(self._io_ended)
        except BaseException:
            _sessions_of_transports.pop(id(transport), None)
            if hasattr(self, "runtime"):
                self._release_runtime()
            raise

    # -- connecting: on the connect thread ----------------------------------------------------------------------------

    def own_options(self) -> dict[str, Any]:
        """Return the part of `TransportOptions` that is the session's own."""
        return {
            "client_ready": self.engine.client_ready,
            "on_interruption": self._interrupt,
            "on_closed": self.end,
            "on_event": self.publisher.event,
            "on_messages": self.receive_all,
            "_runtime": self.runtime,
            "check_wanted": self.check_wanted,
            "time_to_close": self.time_to_close,
        }

    def initialize_transport(self, options: TransportOptions) -> None:
        """Tell the transport that it serves this session now."""
        self._closes_transport = True  # before the call, because a transport that hangs must be told of the end, too
        self.check_wanted()  # else the end was first, and does not happen again
        # After it: the next session may have started.
        self.media.expect(self.runtime, self.publisher, needs_named=self._needs_devices)
        transport, settings = self.transport, self.media.settings
        before = settings.mic, settings.cam
        transport.initialize(options, self.receive)
        self.introduced = True
        # Tell the transport of switches made before it was told of its session.
        if settings.mic is not before[0]:
            transport.enable_mic(settings.mic)
        if settings.cam is not before[1]:
            transport.enable_cam(settings.cam)

    def check_wanted(self) -> None:
        """Raise if the attempt was abandoned, because its thread must not continue."""
        if self._info is not None:  # an abort ends the session, too
            self.abort.signal.raise_if_aborted()
            raise self.close_info.as_error()

    def move(self, state: TransportState) -> bool:
        """Enter `state` and publish it; False if it cannot follow. Any thread."""
        moved = self.publisher.move(state)
        self.transport.state = self.publisher.state
        if moved and (recorder := self.recorder) is not None:
            recorder.note(self, "state", state.value)
        return moved

    def opened(self) -> None:
        """Publish that the transport is open, and become ready if the bot is."""
        # If several ways are tried, one is published when its bot is ready. Otherwise the next way would have to end
        # events that this one started.
        if not (self._is_one_of_several or self._publish_opened()):
            return
        with self._lock:
            self._enter(Phase.OPEN)
            early, self._early_ready = self._early_ready, None
        if early is not None:
            self._become_ready(early)

    def _publish_opened(self) -> bool:
        opened = self.publisher.opened()
        self.transport.state = self.publisher.state
        if opened and (recorder := self.recorder) is not None:
            recorder.note(self, "state", TransportState.CONNECTED.value)
        return opened

    def send_ready_message(self) -> None:
        """Tell the bot that the client is ready."""
        if (recorder := self.recorder) is not None and self.transport.carries_messages:
            recorder.sent(self, self.engine.client_ready, monotonic())
        self.transport.send_ready_message()

    def _become_ready(self, effect: protocol.Ready) -> None:
        """Start the media and publish that the bot is ready. On the thread that delivers messages, if the transport is
        open, else on the connect thread.
        """
        with self._lock:
            if self.phase is Phase.CONNECTING:
                self._early_ready = effect
                return
        if self._is_one_of_several and not self._publish_opened():
            return
        try:
            self.transport.start_media()
        except BaseException as error:  # noqa: BLE001 - a transport may be the application's
            what = f"The {self.transport.name} transport could not start its media"
            failure = TransportStartError(f"{what}: {raised(error)}")
            failure.__cause__ = error
            self.end(CloseInfo(initiator="client", error=failure))
            return
        if self._conversation is not None:  # before the application can send anything
            self.follower = self._conversation.follow(self, effect.data)
        if (recorder := self.recorder) is not None:
            recorder.ready(self, effect.data)
        self.abort.signal._finish()
        if self.move(TransportState.READY):
            self.publisher.event(RTVIEvent.BOT_READY, effect.data, effect.message)
            self.bot = effect.data
            if not self._enter(Phase.READY):  # the session is closing already
                self._moved.notify_all()

    def _aborted(self) -> None:
        """End the attempt: the application has called `abort_controller.abort()`, or the session is ending."""
        if not self.publisher.was_ready:
            self.end(CloseInfo(initiator="client", error=self.abort.signal.reason))

    # -- state: any thread --------------------------------------------------------------------------------------------

    @property
    def in_other_process(self) -> bool:
        """True in a child process that was forked from the session's."""
        return self._generation != fork_generation()

    @property
    def lost_by_fork(self) -> bool:
        """True in a child process that was forked while the session was live."""
        return self.in_other_process and self.phase < Phase.CLOSED

    @property
    def live(self) -> bool:
        """True until the session is ending; False in a forked child."""
        return not self.is_ending and not self.in_other_process

    @property
    def is_ending(self) -> bool:
        """True if the session is ending, or has ended."""
        return self._info is not None

    @property
    def close_info(self) -> CloseInfo:
        """How the session ends, or has ended."""
        return self._info or CloseInfo()

    @property
    def messages_sent(self) -> int:
        """The number of messages that were sent."""
        return sum(self._sent.copy().values())

    @property
    def was_ready(self) -> bool:
        """True once the bot was ready."""
        return self.publisher.was_ready

    @property
    def is_closed(self) -> bool:
        """True once another session may start."""
        return self.phase >= Phase.CLOSED

    @property
    def is_lost(self) -> bool:
        """True if the session has ended against the application's will."""
        return self.is_ending and not (self.close_info.by_application or self.nothing_follows)

    @property
    def may_leave_devices(self) -> bool:
        """True if the next attempt may get the open devices. Devices that have sent or played are not passed on."""
        return self._is_one_of_several and not self.publisher.was_opened

    def _enter(self, phase: Phase) -> bool:
        """Move to `phase`. Return False if the session is there or further already. Any thread."""
        with self._lock:
            if self.phase >= phase:
                return False
            self.phase = phase
        if phase >= Phase.READY:  # no call waits for an earlier one
            (self._drained if phase is Phase.DRAINED else self._moved).notify_all()
        return True

    def wait_for(self, phase: Phase, deadline: Deadline) -> bool:
        """Wait until the session has reached `phase`. Return False if `deadline` passed first."""
        notifier = self._drained if phase is Phase.DRAINED else self._moved
        return notifier.wait_for(lambda: self.phase >= phase, deadline)

    def wait_settled(self, deadline: Deadline, or_when: Callable[[], bool] = lambda: False) -> bool:
        """Wait until the bot is ready, the session is closed, or `or_when()`, after `wake()`, is true. Return False if
        `deadline` passed first.
        """
        return self._moved.wait_for(lambda: self.bot is not None or self.phase >= Phase.CLOSED or or_when(), deadline)

    def wake(self) -> None:
        """Let `wait_settled()` check again."""
        self._moved.notify_all()

    def check_ready(self) -> None:
        """Raise unless messages can be exchanged.

        Raises:
            ForkedProcessError, BotNotReadyError
        """
        if self.lost_by_fork:
            raise forked_error()
        if self.is_ending:
            info, failed = self.close_info, not self.publisher.was_ready
            how = f"the last attempt to connect failed: {info.error or info.describe()}" if failed else info.describe()
            raise BotNotReadyError(f"There is no bot ({how}): call connect() first") from info.failure()
        if not self.publisher.was_ready:
            raise BotNotReadyError("The bot is not ready yet; wait for connect() to return")

    # -- sending: any thread ------------------------------------------------------------------------------------------

    def check_takes(self, message: RTVIMessage, waiter: Future[RTVIMessage] | None = None) -> None:
        """Raise unless the bot takes `message`; see `Engine.outbound()`. Sends nothing.

        Raises:
            BotNotReadyError, ForkedProcessError, UnsupportedFeatureError
        """
        self.check_ready()
        self.check_carries_messages(f"{message.type!r}")
        self.engine.outbound(message, waiter)

    def check_carries_messages(self, what: str) -> None:
        """Raise if the transport has no way to send `what` to the bot.

        Raises:
            UnsupportedFeatureError
        """
        if not self.transport.carries_messages:
            raise UnsupportedFeatureError(
                f"The {self.transport.name} transport carries no messages, so {what} cannot reach the bot: nothing was "
                "sent, and the session goes on. Speak to the bot: ask() takes an audio file (a Path) or an AudioSource",
                feature="messages",
            )

    def send(self, message: RTVIMessage) -> None:
        """Send `message`. Does not block."""
        self.check_takes(message)
        self._transmit(message)

    def press(self, keys: str) -> None:
        """Press keys of a telephone, over a transport that carries no messages. Blocks until they are sent."""
        self.check_ready()
        message, at = RTVIMessage("dtmf", {"buttons": list(keys)}), monotonic()
        if (follower := self.follower) is not None:
            follower.sent(message)
        if (recorder := self.recorder) is not None:
            recorder.sent(self, message, at)
        self.transport.send_dtmf(keys)

    def _send_result(self, message: RTVIMessage) -> None:
        """Send the result of a function. If there is no way to send it, the bot does not wait for one."""
        if self.transport.carries_messages:
            self.send(message)

    def request(self, message: RTVIMessage, deadline: Deadline) -> RTVIMessage:
        """Send `message` and wait for the answer with its id.

        Raises:
            RequestTimeoutError, RequestRejectedError, DisconnectedError, UnsupportedFeatureError, ProtocolError
        """
        answer: Future[RTVIMessage] = Future()
        try:
            self.check_takes(message, answer)
            self._transmit(message)
            if not answer.wait(deadline):
                reported = self._conversation.error_within(deadline.elapsed()) if self._conversation is not None else ""
                raise RequestTimeoutError(
                    f"{reported}The bot has not answered the {_named(message)} request within {deadline.timeout:.3g} "
                    "s; the session goes on. Pass a larger timeout if the bot needs longer."
                    f"{_SILENCE.get(message.type, '')}"
                )
            return answer.result()
        finally:
            if message.id is not None:
                self.engine.pending.abandon(message.id, answer)

    def _transmit(self, message: RTVIMessage) -> None:
        """Send a message that was checked."""
        with self._order if message.type in SAYING else contextlib.nullcontext():
            at = 0.0 if (recorder := self.recorder) is None else monotonic()
            follower = self.follower
            if follower is not None:
                follower.sent(message)  # before the bot can answer it
            try:
                self.transport.send_message(message)
            except BaseException as error:
                if follower is not None:
                    follower.unsent(message)
                # The transport is closed, and knows less about the end than the session.
                if isinstance(error, DisconnectedError) and self.is_ending:
                    raise self.close_info.as_error() from None
                raise
        if recorder is not None:
            recorder.sent(self, message, at)
        self._sent[threading.get_ident()] += 1

    @property
    def wants_config(self) -> bool:
        """True if bots of this version have a config, and this one has not sent it and can be asked for it."""
        return self.engine.wants_config and self.transport.carries_messages

    def fetch_config(self, deadline: Deadline) -> None:
        """Request the config of a bot that has one by its version and has not sent it. Failures don't end the session.

        Raises:
            BotNotReadyError, DisconnectedError: The session ended.
        """
        if not self.wants_config:
            return
        try:
            self.request(self.engine.config_request, deadline)
        except (RequestRejectedError, UnsupportedFeatureError) as error:
            logger.debug("The bot has no config: %s", error)
        except (RequestTimeoutError, ProtocolError) as error:
            logger.warning("client.config stays None: %s", error)

    @property
    def takes_uploads(self) -> bool:
        """True if the server that started the bot takes files for it."""
        start = self.transport.start_request
        return start is not None and start.upload_url is not None

    def upload(self, name: str, media_type: str, content: bytes, deadline: Deadline) -> str:
        """Send a file for the bot to the server that started it, and return the URL by which the bot knows it.

        Raises:
            RequestTimeoutError, RequestRejectedError: It was not in time, or failed. The session continues.
            DisconnectedError: The session ended.
            ProtocolError: The answer has no URL.
            WouldDeadlockError: The calling thread must not block.
        """
        from ..net.http import post_file
        from ..transports.auth_bundle import upload_target, with_cookies

        start, options = self.transport.start_request, self.transport.options
        target = upload_target(start) if start is not None else None
        if start is None or target is None:
            raise RequestRejectedError(
                "The server names an address for files that is none of its own, to which nothing is sent. Put the file "
                "where the bot can read it, and send its URL"
            )
        if must_not_block():
            raise WouldDeadlockError("A large file cannot be sent on this thread, such as in a finalizer")
        headers = dict(start.headers) if options.http_client else with_cookies(start.headers, target, start)
        with self._abortable(deadline) as signal:
            answer = post_file(
                target.geturl(),
                name,
                content,
                media_type,
                headers=headers,
                network=options.network,
                signal=signal,
                client=options.http_client,
            ).document
        source = answer.get("source") if isinstance(answer, Mapping) else None
        url = source.get("url") if isinstance(source, Mapping) else None
        if not isinstance(url, str) or not url:
            where = printable(target.geturl())
            raise ProtocolError(f"{where} has taken the file without naming it. See the server's log")
        return url

    @contextlib.contextmanager
    def _abortable(self, deadline: Deadline) -> Iterator[AbortSignal]:
        """Yield the signal of a request beside the session, which is aborted when the session ends."""
        controller = AbortController(deadline, lambda: DisconnectedError("The session has ended", initiator="client"))
        controller.signal.is_supervised = False
        self._waiting.append(controller)
        try:
            self.check_ready()  # the session may have ended since
            yield controller.signal
        finally:
            self._waiting.remove(controller)

    # -- receiving: one thread at a time ------------------------------------------------------------------------------

    def receive(self, message: Inbound) -> None:
        """Receive one message."""
        self.receive_all((message,))

    def receive_all(self, messages: Iterable[Inbound]) -> None:
        """Turn messages that arrived together into answers, events and function calls.

        Their events are queued together, but before an answer, state, interruption or function call, because those
        must follow them.
        """
        receive, publisher = self.engine.receive if self.recorder is None else self._record, self.publisher
        items: list[Item] = []
        held = 0  # bytes held by the items
        try:
            for message in messages:
                if self._info is not None:
                    break
                self.messages_received += 1
                # Most messages are `str`, and comparing the type takes half as long as `isinstance()`.
                text = message if type(message) is str or isinstance(message, (str, bytes)) else None
                size = envelope.estimated_size(text) if text is not None else 0
                for effect in receive(message):
                    if type(effect) is protocol.Deliver:
                        # Each message has a different time, because applications compare times to find the order.
                        now, last = monotonic(), self._last_moment
                        self._last_moment = received_at = now if now > last else math.nextafter(last, math.inf)
                        item = publisher.item_of(effect, text or effect.message, received_at, size)
                        if item is not None:
                            items.append(item)
                            held += size
                        if effect.event.in_turns and (follower := self.follower) is not None:
                            items += follower.take(effect, received_at)
                        if effect.event not in CALL_EVENTS:
                            continue
                    if items:
                        batch, batch_size, items, held = items, held, [], 0
                        publisher.enqueue(batch, batch_size)
                    self._perform(effect, size)
        finally:
            if items:
                publisher.enqueue(items, held)

    def _record(self, message: Inbound) -> list[protocol.Effect]:
        """Note a message for the recordings, and return its effects."""
        if (recorder := self.recorder) is not None:
            recorder.received(self, message)
        return self.engine.receive(message)

    def _perform(self, effect: protocol.Effect, size: int) -> None:
        """Perform an effect of the bot's message, which holds `size` bytes. An event calls a function."""
        if isinstance(effect, protocol.Deliver):
            self.functions.called(effect, size)
        elif isinstance(effect, protocol.Interrupt):
            self._interrupt()
        elif isinstance(effect, protocol.Ready):
            self._become_ready(effect)
        elif isinstance(effect, protocol.Close):
            self.end(CloseInfo(initiator="server", error=effect.error))
        else:
            self.publisher.perform(effect)

    def _interrupt(self) -> None:
        if (recorder := self.recorder) is not None:
            recorder.note(self, "interruption")
        try:
            self.transport.interrupt_playback()
        except BaseException:
            logger.exception("The %s transport could not drop the bot's audio", self.transport.name)

    def _overflow(self) -> None:
        error = RTVIError(
            "Events arrive faster than the application handles them, and the queue is full; the session is ended. "
            "Handle them faster, subscribe to fewer, or raise max_queued_events / max_queued_bytes."
        )
        self.end(CloseInfo(initiator="client", error=error))

    # -- the end: any thread ------------------------------------------------------------------------------------------

    def end(self, info: CloseInfo, here: PoolTask | None = None) -> bool:
        """End the session, as `info` says if this is the first call. Return whether it is. Does not wait.

        Args:
            info: How the session ends.
            here: The task of the calling thread, if that thread would only wait. It takes the steps itself, unless
                another thread does. None: a new thread takes them.
        """
        is_first = self._fail_calls(info)
        # Not only in the first call, because Ctrl-C may have interrupted that call here.
        if self._close_task is not None or self.phase >= Phase.CLOSING:
            return is_first
        if here is not None:
            End(self, here).run()
            return is_first
        task = PoolTask("close", lambda: End(self, task).run())
        try:
            task.start()
            # If two tasks are started at once, the one that does the work stores itself.
            self._close_task = self._close_task or task
        except RuntimeError:
            if is_exiting():
                End(self, None, Deadline(EndLimits.TEARDOWN)).run()
            else:  # the system has no thread left at the moment, and the calling thread may be the I/O thread
                io = self.runtime.io
                io.call(lambda: io.call_later(NO_THREAD_PAUSE, lambda: self.end(info)))
        return is_first

    def end_and_wait(self, info: CloseInfo, linger: float | None = None) -> None:
        """End the session and wait until it has ended, within the limit of `disconnect()`.

        Args:
            info: How the session ends, if it is not ending already.
            linger: Seconds to wait for handlers of the last events. None: the rest of the limit.
        """
        deadline = Deadline(EndLimits.TEARDOWN)
        self.end(info, current_task() if linger is None and not self._end_waits_for_caller else None)
        if linger is not None or self._end_waits_for_caller:
            if self.wait_closed(deadline) and linger is not None:
                self.wait_drained(Deadline(linger))
        elif not self._wait_drained(deadline):
            self.wait_closed(Deadline(0.0))  # for its log entry

    def at_exit(self, deadline: Deadline) -> None:
        """End the session on this thread, before `deadline`: the interpreter exits."""
        if not self.lost_by_fork:
            self._fail_calls(BY_CLIENT)
            End(self, None, deadline).run()
            self.wait_for(Phase.DRAINED, deadline)

    def _release_runtime(self) -> None:
        self.runtime.io.on_end.discard(self._io_ended)
        self.runtime.release()

    def _io_ended(self, error: BaseException) -> None:
        """End the session of a transport that has no socket on the I/O thread, and so no other sign of its end."""
        self.end(CloseInfo(initiator="network", error=error))

    def _fail_calls(self, info: CloseInfo) -> bool:
        """Record how the session ends, if it is not ending already. Fail all calls that wait or send.

        Returns:
            Whether it was not ending.
        """
        with self._lock:
            is_first = self._info is None
            if is_first:
                self._info = info or CloseInfo(initiator="network")  # a transport of the application may pass None
        # Before anything that takes time, because no call may wait for an answer that cannot arrive. Not only in the
        # first call, which Ctrl-C may have interrupted here. Each call that fails gets an error of its own.
        make_error = self.close_info.as_error
        self.engine.pending.fail_all(make_error)
        for controller in [*self._waiting]:
            controller.abort(make_error())
        self.publisher.end()
        return is_first

    def explain_end(self, error: BaseException) -> None:
        """If the call of `connect()` has ended with this session, let later errors name `error`, which the call raises.

        The session's own error describes one attempt; the call's error may describe several.
        """
        with self._lock:
            info = self._info
            if info is not None and not info.by_application and not self.publisher.was_ready:
                self._info = attrs.evolve(info, error=fresh_copy(error)) if isinstance(error, RTVIError) else info

    def await_end(self, deadline: Deadline) -> None:
        """Wait until an ending session is closed. End it first if its descriptors are gone."""
        if self.in_other_process or self.is_closed:
            return
        if self.runtime.io.detect_loss():
            self.end(CloseInfo(initiator="network", error=closed_error()))
        if self.is_ending:
            self.wait_closed(Deadline(deadline.at_most(EndLimits.TEARDOWN)))

    def wait_closed(self, deadline: Deadline) -> bool:
        """Wait until another session may start. Return False and log it if `deadline` passed first."""
        if self._on_own_thread() or self.wait_for(Phase.CLOSED, deadline):
            return True
        if self._close_task is not None:
            log_stack_of(self._close_task.threads, "A session is not closed in time")
        return False

    def wait_drained(self, deadline: Deadline) -> bool:
        """Wait until the last event was delivered and the threads have ended. Return False if `deadline` passed first.

        Does not wait in a handler of the same client, or in a function that its bot called. The last event follows when
        the handler returns.
        """
        return self._end_waits_for_caller or self._wait_drained(deadline)

    def _wait_drained(self, deadline: Deadline) -> bool:
        drained = self.wait_for(Phase.DRAINED, deadline)
        return drained and (self._close_task is None or self._close_task.done.wait(deadline))

    @property
    def _end_waits_for_caller(self) -> bool:
        """True in a handler of the client, in a function that its bot called, and on the session's own threads."""
        return self._on_own_thread() or self.publisher.queue.is_current or self.functions.is_current

    def _on_own_thread(self) -> bool:
        """Whether the end of the session waits for the calling thread, which must not wait for the end."""
        close, connecting = self._close_task, self.connecting
        return (
            self.runtime.io.is_current
            or (close is not None and close.is_current)
            or (connecting is not None and connecting.is_current)
        )

    def time_to_close(self) -> float:
        """Return how many seconds the transport may spend on sending after its `disconnect()` was called."""
        limit = EndLimits.TEARDOWN * EndLimits.TRANSPORT_SHARE
        deadline = self._transport_deadline or Deadline(EndLimits.TEARDOWN)
        return EndLimits.SENDING_SHARE * deadline.at_most(limit)


class EndLimits:
    """Limits of the end of a session, in seconds or as shares. `End.STEPS` has their order."""

    #: The limit of `disconnect()`.
    TEARDOWN = 5.0
    #: How long `disconnect()` waits for an attempt or a reconnect thread that it has stopped.
    STOP = 1.0
    #: How long `connect()` waits, after its attempt has ended, for the attempt's threads and handlers. Also how long an
    #: action without a session, and everything that `disconnect()` abandons, waits for its thread. Threads end at once,
    #: unless they run the application's own code.
    LINGER = 0.1
    #: How long a thread whose socket was shut down needs to notice it, even on a busy machine. A thread that is in a
    #: name look-up or in the application's code is then left behind.
    SETTLE = 0.1
    #: The share of `TEARDOWN` after which a hanging transport leaves the rest to the handlers of the last events.
    TRANSPORT_SHARE = 0.8
    #: The share of the transport's time in which it may send queued messages. The rest is for closing.
    SENDING_SHARE = 0.9
    #: How long received audio is played to its end. A speaker next to busy threads has 0.6 s of it. If an application's
    #: sink takes no audio for this long, it hangs.
    FLUSH = 1.5
    #: The share of `TEARDOWN` until which a slow but working sink continues.
    SINK_SHARE = 0.6
    #: How long the application's `transcribe` may take for the bot's last words.
    TRANSCRIPTS = 3.0
    #: How long to wait for functions that the bot called. Shorter, because the bot no longer gets their results.
    FUNCTIONS = 1.0
    #: How long the exiting thread delivers events itself, because at exit there may be no worker that does.
    EXIT_DELIVERY = 1.0


class Step(NamedTuple):
    """A step of the end of a session.

    Attributes:
        take: Takes the step.
        share: The share of `EndLimits.TEARDOWN` after which the step stops waiting, measured from the first step. A
            step that ends early leaves its time to the next ones. None: it hardly waits.
    """

    take: Callable[[Any, Deadline], None]
    share: float | None = None


class End:
    """The end of one session: `STEPS`, once, in order, on the close thread.

    Args:
        session: The session, which is ending.
        task: Runs the steps. None: the calling thread does.
        exit_deadline: Limit at the exit of the interpreter, which all sessions share. None: the limits of `EndLimits`.
    """

    def __init__(self, session: Session, task: PoolTask | None, exit_deadline: Deadline | None = None) -> None:
        self._session = session
        self._publisher = session.publisher
        self._task = task
        self._at_exit = exit_deadline is not None
        self._limit = exit_deadline or Deadline(EndLimits.TEARDOWN)
        self._started = monotonic()
        self._unsent: DisconnectedError | None = None
        self._delivered = Latch()

    def run(self) -> None:
        """Take the steps, unless another thread does."""
        session = self._session
        if not session._enter(Phase.CLOSING):
            return
        session._close_task = self._task or session._close_task
        for take, share in self.STEPS:
            take(self, self._limit if share is None else self._until(share))

    def _until(self, share: float) -> Deadline:
        """Return the deadline of a step that waits until this share of the limit has passed."""
        return Deadline(self._limit.at_most(max(0.0, EndLimits.TEARDOWN * share - (monotonic() - self._started))))

    def abandon_attempt(self, _: Deadline) -> None:
        """Wake the connect thread, wherever it blocks, and give it a moment to end.

        Then decide whether another attempt follows a failed one, because it may get the open devices.
        """
        session, connecting = self._session, self._session.connecting
        was_ready = self._publisher.was_ready
        if not was_ready:
            # With an error of its own, because an error that is raised on two threads mixes their tracebacks.
            error = session.close_info.as_error()
            _run_apart(lambda: session.abort.abort(error), Deadline(EndLimits.SETTLE))
        if connecting is not None and not (connecting.done.is_set() or connecting.is_current):
            connecting.done.wait(Deadline(EndLimits.SETTLE))
        if not was_ready:
            self._decide()

    def announce(self, _: Deadline) -> None:
        """Publish that the session is ending, if it was published as connected."""
        if self._publisher.was_opened:
            self._session.move(TransportState.DISCONNECTING)
        self._session._enter(Phase.ANNOUNCED)

    def close_transport(self, deadline: Deadline) -> None:
        """Stop recording, and let the transport send its queued messages and close."""
        session = self._session
        if session._closes_transport:
            if not self._leaves_devices:
                session.media.pause()
            session._transport_deadline = deadline
            self._unsent = self._disconnect(deadline)

    def stop_devices(self, deadline: Deadline) -> None:
        """Stop the devices, or leave them to the attempt that follows."""
        if not self._session._closes_transport or self._leaves_devices:
            return
        timeout = deadline.at_most(EndLimits.FLUSH)
        # At exit all sessions share one limit, so a slow sink must not take the time of the others.
        sinks = 0.0 if self._at_exit else EndLimits.TEARDOWN * EndLimits.SINK_SHARE - (monotonic() - self._started)
        log_stack_of(
            self._session.media.stop(timeout, max(timeout, sinks)), "A source, a sink or a device does not return"
        )

    def close(self, deadline: Deadline) -> None:
        """Queue the last events, and free the transport. From now on another session may start.

        First decide whether to replace a session whose bot was ready. This is done now, because the application's rule
        may be slow.
        """
        session, publisher = self._session, self._publisher
        if publisher.was_ready:
            self._decide()
        info = session.close_info
        if session.follows:
            info = attrs.evolve(info, reconnecting=True)
        at = monotonic()  # turns that are cut off by the end get the same time as `disconnected`
        if session.follower is not None:
            session.follower.end(info, at, Deadline(deadline.at_most(self._words_limit)))
        if (recorder := session.recorder) is not None:
            recorder.note(session, "end", info, at)
        self._delivered = publisher.finish(session.number, info, self._unsent, at, in_connect=session.in_connect)
        session.transport.state = publisher.state
        _sessions_of_transports.pop(id(session.transport), None)
        session._enter(Phase.CLOSED)

    def await_application(self, deadline: Deadline) -> None:
        """Wait for handlers of the last events, and functions that the bot called."""
        if self._publisher.queue.manual:
            return
        self._await_delivery(deadline)
        busy = self._session.functions.join(Deadline(deadline.at_most(EndLimits.FUNCTIONS)))
        late = "A function that the bot called is still running though its session ended; its result is lost"
        log_stack_of(busy, late)

    def release(self, _: Deadline) -> None:
        """Release the threads. The end is complete, and a new session may replace this one."""
        session = self._session
        session._release_runtime()
        unregister_for_exit(session)
        session._enter(Phase.DRAINED)
        # An operation refers to the session that it replaces. That session must not refer to its own operation forever.
        owner, session._owner = session._owner, None
        if owner is not None and self._publisher.was_ready and session.follows:
            owner.drained(session)

    STEPS: Final = (
        Step(abandon_attempt),  # up to twice `SETTLE`
        Step(announce),
        Step(close_transport, EndLimits.TRANSPORT_SHARE),  # 4 s, of which 3.6 s for sending
        Step(stop_devices, 0.85),  # 4.25 s; each device up to `FLUSH`, a slow sink until `SINK_SHARE`
        Step(close, 0.85),  # hardly waits, unless the application's `transcribe` finds the bot's last words
        Step(await_application, 0.9),  # 4.5 s, so that the waiting call still sees its result in time
        Step(release),
    )

    # -- parts of the steps -------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        session = self._session
        if self._at_exit:
            session.nothing_follows = True
        if session._owner is not None:
            session.follows = session._owner.after(session)

    @property
    def _words_limit(self) -> float:
        """Seconds to wait for the bot's last words. At exit there may be no worker left that finds them."""
        return EndLimits.EXIT_DELIVERY if self._at_exit else EndLimits.TRANSCRIPTS

    @property
    def _leaves_devices(self) -> bool:
        return self._session.follows and self._session.may_leave_devices

    def _disconnect(self, deadline: Deadline) -> DisconnectedError | None:
        """Close the transport; return its error if messages could not be sent."""
        transport = self._session.transport
        unsent: list[DisconnectedError] = []

        def disconnect() -> None:
            try:
                transport.disconnect()
            except DisconnectedError as error:
                if self._publisher.was_ready:  # before, the application had sent nothing
                    logger.warning("%s", error)
                unsent.append(fresh_copy(error))
            except BaseException:
                logger.exception("Closing the %s transport failed", transport.name)

        if transport.ends_in_time:
            disconnect()
        elif hanging := _run_apart(disconnect, deadline):
            late = f"The {transport.name} transport does not disconnect in time"
            log_stack_of(hanging, late)
            return DisconnectedError(f"{late}; the last messages may be lost", initiator="client")
        return unsent[0] if unsent else None

    def _await_delivery(self, deadline: Deadline) -> None:
        """Wait until the last event was delivered."""
        publisher, delivered = self._publisher, self._delivered
        if self._at_exit:
            # There may be no worker left that delivers events. On a thread of its own, because a handler may block.
            limit = Deadline(deadline.at_most(EndLimits.EXIT_DELIVERY))
            _run_apart(lambda: publisher.queue.run_queued(limit, until=delivered.is_set), deadline)
        if delivered.wait(deadline) or publisher.overtaken:
            return  # a handler of the last event runs the next session already, so it is not late
        publisher.silence()
        busy = publisher.busy_threads()
        log_stack_of(busy, "A handler is still running though its session ended; its events are dropped")


def _run_apart(work: Callable[[], object], deadline: Deadline) -> list[threading.Thread]:
    """Run `work()` on a thread of its own, so that the end continues even if the application's code hangs.

    Returns:
        The thread, if it is still running at `deadline`.
    """
    task = PoolTask("close", work)
    try:
        task.start()
    except RuntimeError:  # the interpreter is shutting down
        work()
        return []
    return [] if task.done.wait(deadline) else task.threads


def _named(message: RTVIMessage) -> str:
    """Return the type of a request, and the application's own name for it."""
    name = message.data.get("t") if message.type == "client-message" and isinstance(message.data, dict) else None
    return repr(message.type) if name is None else f"{message.type!r} {name!r:.100}"
