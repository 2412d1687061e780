"""One session: from the first step of an attempt to the last event after its end.

| phase | begins with | moved by | on |
|---|---|---|---|
| not begun | `Session()` | `SessionManager` | the thread of `connect()`, or the reconnect thread |
| connecting | `ending.connecting` | `ConnectAttempt.run()` | the same |
| open | `opened()` | `ConnectAttempt` | the connect thread |
| ready | `bot`, `ending.connect_done` | `_become_ready()` | the thread that delivers messages, or the connect thread |
| ending | `ending.has_begun` | `SessionEnd.begin()` | any thread |
| closed | `ending.closed` | `SessionEnd` | the close thread, or the exiting one |
| drained | `ending.drained` | `SessionEnd` | the same |

Phases only move downwards, and any of them may be skipped: an attempt that fails goes from connecting to ending. A
session is used once: late results of an abandoned attempt reach a session that has ended, and have no effect. It refers
to the client and its handlers only weakly, so that a client which is dropped while connected can be collected; its
session is then torn down. docs/threading.md draws the life cycle.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ..concurrency.abort import AbortController
from ..concurrency.deadline import Deadline
from ..concurrency.latch import must_not_block
from ..concurrency.lifecycle import fork_generation, register_for_exit, unregister_for_exit
from ..concurrency.logs import package_logger
from ..concurrency.runtime import Runtime, acquire_runtime
from ..errors import (
    BotNotReadyError,
    InvalidTransportParamsError,
    ProtocolError,
    RequestRejectedError,
    RTVIError,
    StartBotError,
    TransportStartError,
    WouldDeadlockError,
)
from ..events import RTVIEvent
from ..media.manager import MediaManager
from ..messages import BotReadyData
from ..protocol import engine as protocol
from ..protocol.states import CloseInfo, TransportState
from ..protocol.text import raised
from ..transports.base import Transport, TransportOptions
from ..transports.net import printable
from . import limits
from .dispatcher import Dispatcher, forked_error
from .ending import SessionEnd, SessionParts
from .first_messages import FirstMessages
from .message_channel import MessageChannel
from .publisher import ClientState, EventPublisher

logger: logging.Logger = package_logger(__name__)

# The session that each transport serves, by the transport's identity: two clients must not share one. It keeps live
# sessions, which nothing else may hold strongly.
_sessions_of_transports: dict[int, Session] = {}


class Session:
    """One attempt to connect and the session that results.

    Args:
        transport: carries it; no other session may use it until `ending.closed` is set.
        dispatcher, states, media: of the client.
        deadline: limit of the attempt.
        replaces: called on the close thread when the session is lost; True if it is to be replaced. None: never.
        on_lost: called on the close thread last, if it is to be replaced.
        is_followed: called on the close thread if the attempt fails; True if another attempt follows. None: never.
        keep_devices: called on the close thread if another attempt follows, which gets the open devices. The session is
            published as connected only when its bot is ready. None: a session that ends closes the devices.
        in_connect: it is an attempt of a call of `connect()`; see `EventPublisher`.

    Raises:
        InvalidTransportParamsError: the transport serves another session.
    """

    def __init__(
        self,
        transport: Transport,
        dispatcher: Dispatcher,
        states: ClientState,
        media: MediaManager,
        deadline: Deadline,
        *,
        replaces: Callable[[CloseInfo], bool] | None = None,
        on_lost: Callable[[Session], object] | None = None,
        is_followed: Callable[[CloseInfo], bool] | None = None,
        keep_devices: Callable[[], object] | None = None,
        in_connect: bool = False,
    ) -> None:
        self.transport = transport
        self.media = media
        self._on_lost = on_lost
        self._is_one_of_several = keep_devices is not None
        if _sessions_of_transports.setdefault(id(transport), self) is not self:
            raise InvalidTransportParamsError(
                f"The {transport.name} transport serves a session of another client; give each client its own"
            )
        try:
            self.runtime: Runtime = acquire_runtime()
            self._begin(dispatcher, states, deadline, replaces, is_followed, keep_devices, in_connect=in_connect)
        except BaseException:
            _sessions_of_transports.pop(id(transport), None)
            if hasattr(self, "runtime"):
                self.runtime.release()
            raise

    def _begin(
        self,
        dispatcher: Dispatcher,
        states: ClientState,
        deadline: Deadline,
        replaces: Callable[[CloseInfo], bool] | None,
        is_followed: Callable[[CloseInfo], bool] | None,
        keep_devices: Callable[[], object] | None,
        *,
        in_connect: bool,
    ) -> None:
        #: The number of the session, counted from 1 for each client.
        self.number: int = dispatcher.begin_session()
        self.publisher: EventPublisher = EventPublisher(
            dispatcher,
            states,
            self.runtime.workers,
            session=self.number,
            on_overflow=self._overflow,
            in_connect=in_connect,
        )
        self._generation = fork_generation()
        self.abort: AbortController = AbortController(
            deadline, lambda: StartBotError("The connect request was aborted")
        )
        self.channel: MessageChannel = MessageChannel(
            self.transport, self.publisher, self.runtime.workers, check_ready=self.check_ready, perform=self._perform
        )
        self.ending: SessionEnd = SessionEnd(
            SessionParts(
                transport=self.transport,
                media=self.media,
                publisher=self.publisher,
                runtime=self.runtime,
                channel=self.channel,
                abort=self.abort,
            ),
            replaces=replaces,
            on_closed=self._release_transport,
            on_drained=self._drained,
            is_followed=is_followed,
            keep_devices=keep_devices,
        )
        self.abort.signal.on_abort(self._aborted)
        # Guards `_early_ready` and `_is_open`: bot-ready may come before the transport is open. Any thread of
        # the package may hold it, for an assignment; re-entrant, because a finalizer may end the session during one.
        self._lock = threading.RLock()
        self._early_ready: protocol.Ready | None = None
        self._is_open = False
        #: The transport knows of this session: what changes from now on, it must be told.
        self.introduced: bool = False
        #: What the ready bot said about itself; None before.
        self.bot: BotReadyData | None = None
        register_for_exit(self)

    def own_options(self) -> dict[str, Any]:
        """Return the part of `TransportOptions` that is the session's own."""
        return {
            "client_ready": self.channel.engine.client_ready,
            "on_interruption": self._interrupt,
            "on_closed": self.ending.begin,
            "on_event": self.publisher.event,
            "on_messages": self.channel.receive_all,
            "_runtime": self.runtime,
            "check_wanted": self.check_wanted,
            "time_to_close": self.ending.time_to_close,
        }

    def initialize_transport(self, options: TransportOptions) -> None:
        """Tell the transport that it serves this session now. On the connect thread."""
        self.ending.closes_transport = True  # before the call: one that hangs has to be told of the end as well
        self.check_wanted()  # else the end has come first, and does not come again
        self.media.status_reporter.event_sink = self.publisher  # after it: the next session may have begun
        self.media.expect(self.runtime)
        transport, settings = self.transport, self.media.settings
        before = settings.mic, settings.cam
        transport.initialize(options, self.channel.receive)
        self.introduced = True
        # What was switched before the transport knew of its session.
        if settings.mic is not before[0]:
            transport.enable_mic(settings.mic)
        if settings.cam is not before[1]:
            transport.enable_cam(settings.cam)

    # -- state: any thread --------------------------------------------------------------------------------------------

    @property
    def in_other_process(self) -> bool:
        """True in a child process that was forked from the session's."""
        return self._generation != fork_generation()

    @property
    def lost_by_fork(self) -> bool:
        """True in a child process that was forked while the session was live."""
        return self.in_other_process and not self.ending.closed.is_set()

    @property
    def live(self) -> bool:
        """Tell whether the end has not begun; False in a forked child."""
        return not self.ending.has_begun and not self.in_other_process

    def await_end(self, deadline: Deadline) -> None:
        """Wait for the end if it has begun, which takes a moment."""
        if self.in_other_process or self.ending.closed.is_set():
            return
        if self.ending.has_begun:
            self.ending.wait_closed(Deadline(deadline.at_most(limits.TEARDOWN_LIMIT)))
        else:
            self.runtime.io.check()  # if its descriptors are gone, its end begins

    def check_ready(self) -> None:
        """Raise unless messages can be exchanged.

        Raises:
            ForkedProcessError, BotNotReadyError
        """
        if self.lost_by_fork:
            raise forked_error()
        if self.ending.has_begun:
            info, failed = self.ending.info, not self.publisher.was_ready
            how = f"the last attempt to connect failed: {info.error or info.describe()}" if failed else info.describe()
            raise BotNotReadyError(f"There is no bot ({how}). Call connect() first") from info.failure()
        if not self.publisher.was_ready:
            raise BotNotReadyError("The bot is not ready yet; wait for connect() to return")

    @property
    def takes_uploads(self) -> bool:
        """Tell whether the server that has started the bot takes files for it."""
        start = self.transport.start_request
        return start is not None and start.upload_url is not None

    def upload(self, name: str, media_type: str, content: bytes, deadline: Deadline) -> str:
        """Send a file for the bot to the server that has started it, and return the URL by which the bot knows it.

        Raises:
            RequestTimeoutError, RequestRejectedError: not in time, or it failed; the session goes on.
            DisconnectedError: the session ended.
            ProtocolError: the answer has no URL.
            WouldDeadlockError: the calling thread must not block.
        """
        from ..transports.auth_bundle import upload_target, with_cookies
        from ..transports.http import post_file

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
        with self.channel.waiting(deadline) as signal:
            answer = post_file(
                target.geturl(),
                name,
                content,
                media_type,
                headers=headers,
                network=options.network,
                signal=signal,
                client=options.http_client,
            )
        source = answer.get("source") if isinstance(answer, Mapping) else None
        url = source.get("url") if isinstance(source, Mapping) else None
        if not isinstance(url, str) or not url:
            where = printable(target.geturl())
            raise ProtocolError(f"{where} has taken the file without naming it. See the server's log")
        return url

    def check_wanted(self) -> None:
        """Raise if the attempt was given up: its thread must not go on. On the connect thread."""
        self.abort.signal.raise_if_aborted()
        if self.ending.has_begun:  # the signal follows in a moment
            raise self.ending.info.as_error()

    # -- transitions --------------------------------------------------------------------------------------------------

    def move(self, state: TransportState) -> bool:
        """Enter `state` and say so; False if it cannot follow."""
        moved = self.publisher.move(state)
        self.transport.state = self.publisher.state
        return moved

    def opened(self) -> None:
        """Publish that the transport is open, and become ready if the bot is. On the connect thread."""
        # One of several ways is published when it has led to a bot: what it begins, the next one would have to end.
        if not (self._is_one_of_several or self._publish_opened()):
            return
        with self._lock:
            self._is_open = True
            early, self._early_ready = self._early_ready, None
        if early is not None:
            self._become_ready(early)

    def _publish_opened(self) -> bool:
        opened = self.publisher.opened()
        self.transport.state = self.publisher.state
        return opened

    # -- effects of the bot's messages: one thread at a time ----------------------------------------------------------

    def _perform(self, effect: protocol.Ready | protocol.Close | protocol.Interrupt) -> None:
        if isinstance(effect, protocol.Interrupt):
            self._interrupt()
        elif isinstance(effect, protocol.Ready):
            self._become_ready(effect)
        else:
            self.ending.begin(CloseInfo(initiator="server", error=effect.error))

    def _become_ready(self, effect: protocol.Ready) -> None:
        with self._lock:
            if not self._is_open:
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
            self.ending.begin(CloseInfo(initiator="client", error=failure))
            return
        self._prepare_conversation(effect.data)
        self.abort.signal._finish()
        if self.move(TransportState.READY):
            self.publisher.event(RTVIEvent.BOT_READY, effect.data, effect.message)
            self.bot = effect.data
            self.ending.connect_done.set()

    def _prepare_conversation(self, bot: BotReadyData) -> None:
        """Let the client's conversation follow the session; without one, keep what it would need."""
        channel = self.channel
        channel.first_messages = FirstMessages(
            self.runtime.io, self.media.received, bot, user_is_muted=channel.engine.user_is_muted
        )
        conversation = self.publisher.conversation  # read after: one that begins now finds what is kept
        if conversation is not None:
            conversation.follow(self)

    def _interrupt(self) -> None:
        try:
            self.transport.interrupt_playback()
        except BaseException:
            logger.exception("The %s transport could not drop what the bot said", self.transport.name)

    # -- the end ------------------------------------------------------------------------------------------------------

    def at_exit(self, deadline: Deadline) -> None:
        """End the session on this thread, before `deadline`: the interpreter exits."""
        if not self.lost_by_fork:
            self.ending.at_exit(deadline)

    def _aborted(self) -> None:
        """End the attempt: the application has called `abort_controller.abort()`, or the end has."""
        if not self.publisher.was_ready:
            self.ending.begin(CloseInfo(initiator="client", error=self.abort.signal.reason))

    def _overflow(self) -> None:
        error = RTVIError(
            "Events arrive faster than the application handles them, and the queue is full; the session is ended. "
            "Handle them faster, subscribe to fewer, or raise max_queued_events / max_queued_bytes."
        )
        self.ending.begin(CloseInfo(initiator="client", error=error))

    def _release_transport(self) -> None:
        """Let another session have the transport, which is closed."""
        self.transport.state = self.publisher.state
        _sessions_of_transports.pop(id(self.transport), None)

    def _drained(self) -> None:
        """Let what follows begin: the end is complete."""
        unregister_for_exit(self)
        self.ending.drained.set()
        if self._on_lost is not None and self.publisher.was_ready and self.ending.is_replaced:
            self._on_lost(self)
