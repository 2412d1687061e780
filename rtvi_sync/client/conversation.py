"""What is said in the sessions of one client, as turns.

The tracker of turns gets everything on the client's event queue: the bot's events, what the client sends, and the time.
So all of it has one order, which is that of the wire: an item for a message is queued before the message is sent, and
the time that passes is queued behind the events that have come.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Protocol

import attrs

from ..concurrency.clock import monotonic
from ..concurrency.lifecycle import register_for_fork
from ..errors import ProtocolError
from ..events import Event, RTVIEvent
from ..messages import BotReadyData, RTVIMessage
from ..protocol.dialects import parse_version
from ..protocol.engine import Deliver
from ..protocol.states import CloseInfo
from ..protocol.text import one_line
from ..protocol.tracker import MAX_TURNS, TurnTracker
from ..protocol.turn_record import TurnRecord, speech_of
from ..session.dispatcher import Dispatcher
from ..session.first_messages import Entry
from ..session.session import Session
from .session_audio import SessionAudio, TakenAudio
from .turn import Turn

# Seconds by which a timer waits for what the I/O thread has not read yet, if the process was stopped meanwhile.
_READ_FIRST = 0.01

# The audio of a turn is read at this interval at least, in seconds, if the bot sends events, so that little is left to
# do when the turn is over.
_READ_INTERVAL = 0.25


class Saying(Protocol):
    """A question that is being said."""

    def may_be(self, turn: Turn) -> bool:
        """Return whether a turn may be that of the question."""


class SessionFollower:
    """Passes to the conversation what one session sends, and the time.

    Args:
        conversation: gets it.
        session: is followed.
        bot: what its bot said about itself.
    """

    def __init__(self, conversation: ConversationTracker, session: Session, bot: BotReadyData) -> None:
        self._conversation = conversation
        self.bot: str = _about(bot)
        self.session_number: int = session.number
        self.goes_on: bool = not session.publisher.in_connect  # the session replaces a lost one
        self._publisher = session.publisher
        self._io = session.runtime.io
        self.audio: SessionAudio = SessionAudio(session.media, conversation.max_turn_audio)
        self.read_at: float = 0.0  # when the audio was read last
        self.early: list[Callable[[], None]] = []  # what has come before the conversation has begun with the session
        self._timer_due: float | None = None

    def post(self, call: Callable[[], None]) -> bool:
        """Queue a call behind the events that have come; return False if the last one has been queued."""
        return self._publisher.call(call, 0)

    def publish(self, type_: RTVIEvent, turn: Turn) -> None:
        """Deliver an event. On the thread that takes the events."""
        self._publisher.deliver(type_, turn, len(turn.audio.pcm) + len(turn.user_audio.pcm))

    def sent(self, message: RTVIMessage) -> None:
        """Note a message that is about to be sent. Any thread."""
        self._conversation.sent_at = now = monotonic()
        self.post(partial(self._conversation.take_sent, self, now, message))

    def unsent(self, message: RTVIMessage) -> None:
        """Note that a message could not be sent. Any thread."""
        self.post(partial(self._conversation.take_unsent, self, monotonic(), message))

    def call_at(self, due: float) -> None:
        """Let time pass at `due`, unless a timer that is set does it before. On the thread that takes the events."""
        if self._timer_due is not None and self._timer_due <= due:
            return
        self._timer_due = due
        io, reference = self._io, weakref.ref(self)  # a session may end long before

        def on_due() -> None:
            if (follower := reference()) is not None:
                follower._on_timer()

        io.call(lambda: io.call_later(max(0.0, due - monotonic()), on_due))

    def _on_timer(self) -> None:
        """Let the I/O thread read first what has come while the process was stopped. On that thread."""
        self._io.call_later(_READ_FIRST, lambda: self.post(partial(self._pass_time, monotonic())))

    def _pass_time(self, now: float) -> None:
        self._timer_due = None
        self._conversation.pass_time(self, now)


class ConversationTracker:
    """Follows the turns of one client, from its construction on. Its methods may be called on any thread.

    Args:
        dispatcher: of the client.
        max_turn_audio: seconds of the bot's audio that a turn keeps.
    """

    def __init__(self, dispatcher: Dispatcher, *, max_turn_audio: float) -> None:
        self.max_turn_audio = max_turn_audio
        # Guards the tracker, which is changed on the event queue and read by any thread, and its patience. Re-entrant,
        # because a finalizer may run on the thread that holds it.
        self._lock = threading.RLock()
        self._tracker = TurnTracker()
        self._patience: dict[object, float] = {}  # of each call that waits
        # What follows belongs to the thread that takes the events.
        self._follower: SessionFollower | None = None  # of the session whose events come now
        self._coming: SessionFollower | None = None  # of the session that begins next; set by `follow()`
        self._taken_until = 0.0  # events before were taken from what the session had kept
        #: The last turns that are over, and that no call has returned yet.
        self.unclaimed: deque[Turn] = deque(maxlen=MAX_TURNS)
        #: When the client has sent something last.
        self.sent_at: float = 0.0
        #: Ids of the messages by which calls ask that return the turns themselves.
        self.asked: set[str] = set()
        #: The questions that are being said, which return their turns themselves.
        self.speaking: set[Saying] = set()
        self._over: dict[int, Turn] = {}  # by number
        dispatcher.observe(self._tracker.events, self._take)
        dispatcher.conversation = self
        register_for_fork(self)

    # -- sessions: any thread -----------------------------------------------------------------------------------------

    def follow(self, session: Session) -> None:
        """Follow a session that is about to be ready, or is. See `ConversationPort`."""
        with self._lock:
            first = session.first_messages
            if first is None or session.follower is not None:
                return
            # In this order, so that what comes meanwhile is kept, or waits for the conversation, or both.
            self._coming = session.follower = follower = SessionFollower(self, session, first.bot)
            session.first_messages = None
        if not follower.goes_on:
            self.unclaimed.clear()  # now, because `connect()` may return before `_begin()` runs
        entries, frames = first.forward_to(follower)
        follower.audio.begin(frames)
        # Without what was kept it counts what the bot has reported since; what is queued of that changes nothing.
        is_muted = first.user_is_muted if entries else session.engine.user_is_muted
        begin = partial(self._begin, follower, first.bot, entries, user_is_muted=is_muted)
        if not follower.post(begin) and self._coming is follower:
            self._coming = None  # the session is over

    def _begin(
        self, follower: SessionFollower, bot: BotReadyData, entries: Iterable[Entry], *, user_is_muted: bool
    ) -> None:
        """Begin with a session: with what it has kept, and then with what has come since."""
        if self._follower is not None:
            self._end_session(self._follower, monotonic())
        self._follower, self._coming = follower, None
        if not follower.goes_on:
            self.unclaimed.clear()  # of what has just ended
        with self._lock:
            self._tracker.start_session(
                audio_out=bot.capabilities.audio_out is not False,
                version=parse_version(bot.version),
                user_is_muted=user_is_muted,
            )
        early, follower.early = follower.early, []
        _make_all(deque([*(partial(self._take_entry, follower, *entry) for entry in entries), *early]))

    def _take_entry(self, follower: SessionFollower, at: float, what: Deliver | RTVIMessage) -> None:
        if isinstance(what, RTVIMessage):
            self.sent_at = max(self.sent_at, at)
            self._change(follower, at, self._tracker.sent, at, what)
        else:
            self._taken_until = at
            self._change(follower, at, self._take_kept, at, what)

    def _take_kept(self, at: float, effect: Deliver) -> list[TurnRecord]:
        try:
            data = effect.decode()
        except ProtocolError:
            return []  # the event `unknown_message` reports it
        return self._tracker.take(Event(type=effect.event, data=data, received_at=at, message=None))

    # -- what happens: on the event queue -----------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        follower = self._follower
        if follower is None:
            if self._coming is not None:
                self._coming.early.append(partial(self._take, event))
        elif event.received_at > self._taken_until:
            self._read_audio(follower, event.received_at)
            self._change(follower, event.received_at, self._tracker.take, event)

    def session_over(self, number: int, at: float, info: CloseInfo) -> None:
        """See `ConversationPort`."""
        follower = self._follower
        if follower is not None and follower.session_number == number:
            self._end_session(follower, at, lost=_is_loss(info))

    def _end_session(self, follower: SessionFollower, at: float, *, lost: bool = False) -> None:
        self._change(follower, at, partial(self._tracker.end_session, lost=lost), at)
        follower.audio.close()
        self._follower = None

    def take_sent(self, follower: SessionFollower, at: float, message: RTVIMessage) -> None:
        """Take a message that is about to be sent."""
        if follower is self._coming:
            follower.early.append(partial(self.take_sent, follower, at, message))
        elif follower is self._follower:
            self._read_audio(follower, at)
            self._change(follower, at, self._tracker.sent, at, message)

    def take_unsent(self, follower: SessionFollower, at: float, message: RTVIMessage) -> None:
        """Take a message that could not be sent."""
        if follower is self._coming:
            follower.early.append(partial(self.take_unsent, follower, at, message))
        elif follower is self._follower and message.id is not None:
            self.asked.add(message.id)  # no call returns a turn that the bot knows nothing of
            self._change(follower, at, self._tracker.unsent, at, message.id)

    def pass_time(self, follower: SessionFollower, now: float) -> None:
        """Let time pass."""
        if follower is self._follower:
            self._change(follower, now, self._tracker.pass_time, now)

    @contextlib.contextmanager
    def patience(self, seconds: float) -> Iterator[None]:
        """Let answers that owe nothing count as incomplete, in the block, until the bot has been quiet for this long.
        If several calls wait, for the longest of their times. Any thread.
        """
        if not seconds:
            yield
            return
        call = object()
        try:
            self._change_patience(lambda: self._patience.setdefault(call, seconds))
            yield
        finally:
            self._change_patience(lambda: self._patience.pop(call, 0.0))

    def _change_patience(self, change: Callable[[], object]) -> None:
        tracker = self._tracker
        with self._lock:
            change()
            before, tracker.patience = tracker.patience, max(self._patience.values(), default=0.0)
            is_less = tracker.patience < before
        follower = self._follower
        if is_less and follower is not None:
            follower.post(partial(self._settle, follower, monotonic()))

    def _settle(self, follower: SessionFollower, at: float) -> None:
        if follower is self._follower:
            self._change(follower, at, self._tracker.settle, at)

    def _change(
        self, follower: SessionFollower, at: float, method: Callable[..., list[TurnRecord]], *arguments: Any
    ) -> None:
        """Call a method of the tracker for what happened at a moment, and publish what came of it."""
        with self._lock:
            records = method(*arguments)
        self._publish(follower, at, records)

    def _read_audio(self, follower: SessionFollower, at: float) -> None:
        """Read the audio before a turn begins, and now and then during one."""
        now, speeches = monotonic(), self._tracker.speeches
        if not speeches or now >= follower.read_at + _READ_INTERVAL:
            follower.read_at = now
            follower.audio.read(speeches, at)

    def _publish(self, follower: SessionFollower, at: float, records: list[TurnRecord]) -> None:
        """Publish the turns that have begun or are over, and set the timer for what is due."""
        try:
            if records:
                _make_all(deque(partial(self._publish_one, follower, at, *records[n:]) for n in range(len(records))))
        finally:
            if records:
                follower.audio.read(self._tracker.speeches, at)  # keeps more, or less, from now on
            if (due := self._tracker.due) is not None:
                follower.call_at(due)

    def _publish_one(self, follower: SessionFollower, at: float, record: TurnRecord, *later: TurnRecord) -> None:
        if record.status == "in_progress":
            follower.publish(RTVIEvent.TURN_STARTED, _turn_of(record))
        else:
            follower.publish(RTVIEvent.TURN_ENDED, self._ended(follower, at, record, later))

    def _ended(self, follower: SessionFollower, at: float, record: TurnRecord, later: Iterable[TurnRecord]) -> Turn:
        """Return a turn that is over, with its audio; that of `later` ones, which are told next, is kept."""
        speeches = [
            *self._tracker.speeches,
            *(speech_of(other.timings) for other in later if other.modality == "audio"),
        ]
        turn = _turn_of(record, follower.audio.take(record, speeches, at), follower.bot)
        over = self._over
        over[turn.number] = turn
        for number in [number for number in over if number <= turn.number - MAX_TURNS]:
            del over[number]
        if turn.message_id in self.asked:
            self.asked.discard(turn.message_id)
        elif not any(question.may_be(turn) for question in self.speaking.copy()) and (
            self._coming is None or self._coming.goes_on
        ):
            self.unclaimed.append(turn)
        return turn

    # -- what is known: any thread ------------------------------------------------------------------------------------

    def turns(self) -> tuple[Turn, ...]:
        """Return the last turns, with those that are not over."""
        with self._lock:
            over, bot = self._over, self._follower.bot if self._follower is not None else ""
            return tuple(over.get(record.number) or _turn_of(record, bot=bot) for record in self._tracker.turns)

    def after_fork_in_child(self) -> None:
        """Renew the lock, and forget the calls that wait, which are those of threads of the parent."""
        self._lock = threading.RLock()
        self._patience.clear()
        self._tracker.patience = 0.0
        self.speaking.clear()


def _make_all(calls: deque[Callable[[], None]]) -> None:
    """Make all calls, also if Ctrl-C interrupts a handler in one of them; it is raised at the end."""
    try:
        while calls:
            calls.popleft()()
    finally:
        if calls:
            _make_all(calls)


_RECORDED = [field.name for field in attrs.fields(TurnRecord)]


def _turn_of(record: TurnRecord, audio: TakenAudio | None = None, bot: str = "") -> Turn:
    fields = {name: getattr(record, name) for name in _RECORDED}
    if audio is not None:
        fields |= {"timings": audio.timings, "audio": audio.bot, "user_audio": audio.user}
    return Turn(**fields, bot=bot)


def _about(bot: BotReadyData) -> str:
    library = " ".join(filter(None, (bot.about.library, bot.about.library_version)))
    return one_line(", ".join(filter(None, (f"RTVI {bot.version}" if bot.version else "", library))))


def _is_loss(info: CloseInfo) -> bool:
    """Return whether a session was cut off. A normal end has the code 1000, or 1005, which stands for a close frame
    without one (RFC 6455, section 7.4.1); WebRTC has none.
    """
    return info.initiator == "network" or info.error is not None or info.code not in (None, 1000, 1005)
