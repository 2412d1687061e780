"""Makes turns from the events of one client's sessions.

Each event is taken where it happens: a message of the bot on the thread that delivers it, the end of a session on the
thread that ends it, and the passing of time on the I/O thread. A thread that sends only notes the message, because a
signal may interrupt it anywhere. The message is then taken before the next event, or on the I/O thread.

Only the events of turns pass the event queue, behind the event that caused them, and only if they have a listener. So
the handlers of earlier events have returned when `ask()` gets the end of its turn.

If the transport carries no messages, the bot's words are known only if the transport has a `transcribe`. A turn that
has ended is then pending, and appears to be in progress, until a worker has its words.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import attrs

from ..concurrency.clock import monotonic
from ..concurrency.deadline import Deadline
from ..concurrency.latch import Notifier
from ..concurrency.lifecycle import register_for_fork
from ..concurrency.lock import new_lock
from ..concurrency.logs import package_logger
from ..concurrency.serial_queue import Item
from ..concurrency.serial_work import SerialWork
from ..errors import ProtocolError, RequestTimeoutError, WouldDeadlockError
from ..events import RTVIEvent
from ..media.media import Media
from ..messages import BotReadyData, RTVIMessage
from ..protocol.dialects import load_payload, parse_version
from ..protocol.engine import Deliver
from ..protocol.heard import moment_of
from ..protocol.sent_text import SAYING
from ..protocol.session_payloads import ErrorData
from ..protocol.states import CloseInfo, is_loss
from ..protocol.text import MAX_LENGTH, one_line, quoted
from ..session.event_bus import EventPublisher
from .audio import SessionAudio, TurnCut
from .record import TurnRecord, speech_of
from .tracker import MAX_TURNS, OpenTurn, TurnTracker
from .transcripts import transcript_of
from .turn import Turn

if TYPE_CHECKING:
    from ..session.session import Session

# Seconds that a timer waits for the I/O thread to read its input, in case the process was stopped.
_READ_FIRST = 0.01
# While the bot sends events, the audio of a turn is read at least at this interval, in seconds. Then little is left to
# do when the turn ends.
_READ_INTERVAL = 0.25
# Seconds after the first event of a session for which the bot's audio is kept even if turns are not used yet. Bots
# greet at once, and `listen()` may be called a little later.
_FIRST_SECONDS = 5.0

TURN_EVENTS = (RTVIEvent.TURN_STARTED, RTVIEvent.TURN_ENDED)

Change: TypeAlias = Callable[[TurnTracker], list[OpenTurn]]
"""An event for the tracker, as a function that returns the turns that started or ended with it."""

_NOTHING: list[Item] = []

logger: logging.Logger = package_logger(__name__)


class Saying(Protocol):
    """A question that is being said."""

    def may_be(self, turn: TurnRecord) -> bool:
        """Whether a turn may belong to the question."""


class GivenUp(NamedTuple):
    """A spoken question that was cut short, or whose call has returned without its answer.

    Attributes:
        session: The number of its session.
        first: The first turn number that may belong to it.
        all_sent: Whether all of it was sent, and silence since.
    """

    session: int
    first: int
    all_sent: bool


class AskLock:
    """A fair lock: threads ask one after the other, in the order of their calls."""

    def __init__(self) -> None:
        # The identities of threads; the first holds the lock. Each thread changes it in single steps.
        self._waiting: list[int] = []
        self._released = Notifier()

    @contextlib.contextmanager
    def hold(self, deadline: Deadline) -> Iterator[None]:
        """Acquire the lock, and hold it in the block.

        Raises:
            RequestTimeoutError: The lock was not free before `deadline`.
            WouldDeadlockError: Called in a signal handler, and the interrupted thread holds the lock or waits for it.
        """
        me = threading.get_ident()
        if me in self._waiting:
            raise WouldDeadlockError(
                "ask() was called in a signal handler that has interrupted another ask(). Call it on another thread."
            )
        try:
            self._waiting.append(me)
            queues = self._waiting[0] != me
            # A question that is sent when its time is over would only interrupt the answer to another one.
            if queues and (not self._released.wait_for(lambda: self._waiting[0] == me, deadline) or deadline.expired):
                raise RequestTimeoutError(
                    f"Another thread's ask() has not returned within {deadline.timeout} s. Pass a larger timeout, or "
                    "give each thread a client of its own."
                )
            yield
        finally:
            if me in self._waiting:
                self._waiting.remove(me)
            self._released.notify_all()

    def after_fork_in_child(self) -> None:
        """Release the lock, which threads of the parent may hold or wait for."""
        self._waiting, self._released = [], Notifier()


class SessionFollower:
    """Passes the events of one session to the conversation, and puts the events of its turns on the event queue.

    Args:
        conversation: The client's conversation.
        session: The session, whose bot is ready.
        bot: The bot's description of itself.
    """

    # An idle session has this object and nothing else for turns, and a process may have thousands of sessions.
    __slots__ = (
        *("__weakref__", "_conversation", "_hears", "_io", "_media", "_publisher", "_session", "_transport"),
        *("_will_catch_up", "audio", "bot", "is_telling", "number", "read_at", "timer_due", "user_is_muted"),
    )

    def __init__(self, conversation: ConversationTracker, session: Session, bot: BotReadyData) -> None:
        self._conversation = conversation
        self._publisher: EventPublisher = session.publisher
        self._session = weakref.ref(session)
        self._transport = transport = session.transport
        # Finds the words of turns. None: messages contain them.
        self._hears: SerialWork | None = (
            None if transport.carries_messages else SerialWork(self._transcribe, session.runtime.workers)
        )
        self._io = session.runtime.io
        self._media: Media = session.media
        self.bot = bot
        #: Number of the session, among the followed sessions.
        self.number: int = conversation.sessions
        self.user_is_muted: bool = session.engine.user_is_muted
        self.is_telling: bool = False  # a transcribed turn is being published; changed in single steps
        self._will_catch_up = False  # a call on the I/O thread is due; changed in single steps
        # The rest is guarded by the conversation's lock.
        #: None until the first event of the session, or until turns are used.
        self.audio: SessionAudio | None = None
        self.read_at: float = 0.0  # when the audio was last read
        self.timer_due: float | None = None

    # -- events of the session ------------------------------------------------------------------------------------

    def take(self, effect: Deliver, at: float) -> list[Item]:
        """Take an event of the bot. On the thread that delivers messages.

        Returns:
            The events of turns, for the queue, to be put behind the event of the message.
        """
        try:
            moment = None if self.has_words else moment_of(effect.data, at)
            items = self._conversation.take(self, effect.event, at, effect.decode(), moment)
        except ProtocolError:
            return _NOTHING  # the event `unknown_message` reports it
        except Exception:
            logger.exception("The turns could not be followed. Please report it: it is a fault of rtvi_sync")
            return _NOTHING
        self.hear()
        return items

    def sent(self, message: RTVIMessage) -> None:
        """Note a message that is about to be sent. Any thread."""
        self._conversation.sent_at = now = monotonic()
        if message.type in SAYING:
            self.note(now, lambda tracker: tracker.sent(now, message))

    def unsent(self, message: RTVIMessage) -> None:
        """Note that a message could not be sent. Any thread."""

        def change(tracker: TurnTracker) -> list[OpenTurn]:
            if (id_ := message.id) is None:
                return []
            self._conversation.asked.add(id_)  # no call should return a turn that the bot doesn't know
            return tracker.unsent(now, id_)

        now = monotonic()
        self.note(now, change)

    def note(self, at: float, change: Change) -> None:
        """Note an event of a thread that must not hold the lock. Any thread."""
        self._conversation.noted.append((self, at, change))
        if self._will_catch_up:  # the call has not started, and will take this event as well
            return
        try:
            self._will_catch_up = True
            self._io.call(self._catch_up)
        except BaseException:  # Ctrl-C
            self._will_catch_up = False
            raise

    def end(self, info: CloseInfo, at: float, deadline: Deadline) -> None:
        """End the turns of the session, before its last events are queued. On the thread that ends it.

        Args:
            info: How the session ends.
            at: The moment.
            deadline: Limit of the wait for the bot's last words.
        """
        try:
            self.publish(self._conversation.end_session(self, at, lost=is_loss(info)))
            if self._hears is not None:
                self._await_words(deadline)
        except Exception:
            logger.exception("The turns could not be ended. Please report it: it is a fault of rtvi_sync")

    # -- words: on a worker, and on the thread that ends the session --------------------------------------------------

    @property
    def has_words(self) -> bool:
        """Whether messages contain the words of turns."""
        return self._transport.carries_messages

    @property
    def is_transcribed(self) -> bool:
        """Whether `transcribe` finds the words of turns."""
        return self._hears is not None and self._transport.transcribe is not None

    def hear(self) -> None:
        """Find the words of ended turns, on a worker. Any thread, without the conversation's lock."""
        if self._hears is not None and self._conversation.pending(self) is not None:
            self._hears.call()

    def _transcribe(self) -> None:
        conversation = self._conversation
        while (ended := conversation.pending(self)) is not None:
            transcribe = self._transport.transcribe
            text = transcript_of(transcribe, ended.turn().audio) if transcribe is not None else None
            self._tell(ended, text)

    def _tell(self, ended: EndedTurn, text: str | None) -> None:
        """Publish a turn with its words, unless it was published without them."""
        self.is_telling = True  # the end of the session waits until this is done, because its own events must follow
        try:
            items = self._conversation.heard(self, ended, text)
            if items is None:
                return
            session = self._session()
            if text is not None and session is not None and (recorder := session.recorder) is not None:
                at = ended.record.timings.ended  # not now, which may be after the end of the session
                recorder.note(session, "transcript", (at, text), at)
            self.publish(items)
        finally:
            self.is_telling = False
            self._conversation.words_found.notify_all()

    def _await_words(self, deadline: Deadline) -> None:
        conversation = self._conversation
        if not conversation.await_words(self, deadline):
            logger.warning("The function `transcribe` does not return in time; the session ends without the last words")
        for ended in conversation.all_pending(self):
            self._tell(ended, None)

    # -- the I/O thread -------------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        self._will_catch_up = False  # first, because events noted from now on may miss this call
        self.publish(self._conversation.catch_up())

    def _pass_time(self) -> None:
        self.publish(self._conversation.pass_time(self, monotonic()))

    def _forget_audio(self) -> None:
        self._conversation.forget_audio(self)

    def call_at(self, due: float) -> None:
        """Let time pass at `due`. Under the conversation's lock."""
        self.timer_due = due
        # The I/O thread first reads the data that arrived while the process was stopped.
        self._call_later(
            due - monotonic(), lambda follower: follower._call_later(_READ_FIRST, SessionFollower._pass_time)
        )

    def _call_later(self, seconds: float, call: Callable[[SessionFollower], object]) -> None:
        io, reference = self._io, weakref.ref(self)  # the session may end long before

        def on_due() -> None:
            if (follower := reference()) is not None:
                call(follower)

        io.call(lambda: io.call_later(max(0.0, seconds), on_due))

    # -- audio: under the conversation's lock ---------------------------------------------------------------------

    def open_audio(self, *, in_full: bool) -> None:
        """Read the audio of the session from now on.

        Args:
            in_full: True: the audio of both sides, to the end of the session. False: turns are not used yet. Read only
                the bot's audio, for a short time.
        """
        self.audio = SessionAudio(self._media, self._conversation.max_turn_audio, in_full=in_full)
        if not in_full:
            self._call_later(_FIRST_SECONDS, SessionFollower._forget_audio)

    # -- events ---------------------------------------------------------------------------------------------------

    def has_listener(self, *, is_explicit: bool = False) -> bool:
        """Whether events of turns have a listener; `is_explicit`: other than for all events."""
        publisher = self._publisher
        is_heard = publisher.has_explicit_listener if is_explicit else publisher.has_listener
        return is_heard(RTVIEvent.TURN_STARTED) or is_heard(RTVIEvent.TURN_ENDED)

    def items_of(self, type_: RTVIEvent, turn: EndedTurn | OpenTurn) -> list[Item]:
        """Return the queue item that delivers an event of a turn. Empty if the event has no listener."""
        publisher = self._publisher
        if not publisher.has_listener(type_):
            return _NOTHING
        known = turn.record() if isinstance(turn, OpenTurn) else turn
        return [(_deliver, publisher, type_, known, monotonic(), 0)]

    def publish(self, items: list[Item]) -> None:
        """Queue events of turns."""
        if items:
            self._publisher.enqueue(items, 0)
        self.hear()


def _deliver(item: Item) -> None:
    """Deliver an event of a turn. On the queue's worker, which also joins the audio of the turn."""
    _, publisher, type_, turn, at, _ = item
    turn = turn.turn() if isinstance(turn, EndedTurn) else turn_of(turn)
    publisher.deliver(type_, turn, at, len(turn.audio.pcm) + len(turn.user_audio.pcm))


class EndedTurn:
    """An ended turn. Its `Turn` is made on first use, because joining its audio takes time.

    Args:
        record: The turn.
        bot: The bot's description of itself.
        cut: Its audio.
    """

    __slots__ = ("_cut", "_turn", "bot", "record")

    def __init__(self, record: TurnRecord, bot: BotReadyData, cut: TurnCut) -> None:
        self.record: TurnRecord = record
        self.bot: BotReadyData = bot
        # Written in single steps, the turn first.
        self._cut: TurnCut | None = cut
        self._turn: Turn | None = None

    def turn(self) -> Turn:
        """Return the turn. Threads that call this at the same time may get different objects. Any thread."""
        cut, turn = self._cut, self._turn  # in this order
        if turn is None:
            assert cut is not None, "there is one or the other"
            self._turn = turn = turn_of(self.record, cut, about_bot(self.bot))
            self._cut = None
        return turn

    def hear(self, text: str) -> None:
        """Add the bot's words. On the thread that made the turn."""
        self.record = attrs.evolve(self.record, bot_text=text, spoken_text=text)
        if self._turn is not None:
            self._turn = attrs.evolve(self._turn, bot_text=text, spoken_text=text)

    def forget_audio(self) -> None:
        """Forget the audio, unless it was used already."""
        if (cut := self._cut) is not None:
            self._cut = cut.without_audio()


class ConversationTracker:
    """Follows the turns of one client. Made when the client first connects or uses turns.

    Args:
        max_turn_audio: Seconds of the bot's audio that a turn keeps.
    """

    # Mutable state. `_lock` guards the tracker, the audio of the current session, the ended turns and the followers.
    # Threads that take events or read turns hold it for the work of one message. It is re-entrant, because a finalizer
    # may run on a thread that holds it. Any thread changes `noted`, `asked`, `speaking` and `_patience` by single
    # steps.

    def __init__(self, *, max_turn_audio: float) -> None:
        self.max_turn_audio = max_turn_audio
        #: The number of followed sessions.
        self.sessions: int = 0
        #: False: the transport of the last session carries no messages, so nothing reports words and calls.
        self.has_words: bool = True
        self._lock = new_lock()
        self._tracker: TurnTracker | None = None  # made with the first message, which most sessions of a load test lack
        self._follower: SessionFollower | None = None  # of the current session
        self._started: SessionFollower | None = None  # the follower with which the tracker started
        self._over: dict[int, EndedTurn] = {}  # by number
        # The last ended turns that no call has returned yet.
        self._unclaimed: list[EndedTurn] = []
        # The current session's ended turns whose words are not known yet.
        self._pending: list[EndedTurn] = []
        #: Notified when a turn was published, with its words or without.
        self.words_found: Notifier = Notifier()
        self._is_used = False  # by a call, or by a handler
        #: Events of threads that must not hold the lock, with their moments, oldest first.
        self.noted: list[tuple[SessionFollower, float, Change]] = []
        self._patience: dict[object, float] = {}  # of each waiting call
        #: The time of the client's last message.
        self.sent_at: float = 0.0
        #: Ids of the messages of calls that return their turns themselves.
        self.asked: set[str] = set()
        #: The questions that are being said, whose calls return their turns themselves.
        self.speaking: set[Saying] = set()
        #: The last spoken question, if it was given up. The bot may still be hearing it.
        self.given_up: GivenUp | None = None
        #: Number of the last turn whose answer never arrived: later questions don't wait for it again.
        self.unanswered: int = 0
        self._last_error: tuple[float, ErrorData] | None = None  # and when the bot reported it
        #: Held by the thread that asks.
        self.ask_lock: AskLock = AskLock()
        register_for_fork(self)

    # -- sessions -----------------------------------------------------------------------------------------------------

    def follow(self, session: Session, bot: BotReadyData) -> SessionFollower:
        """Follow a session whose bot is ready. Before the application can send anything."""
        self.sessions += 1
        follower = SessionFollower(self, session, bot)
        with self._lock:
            self._follower = follower
            self.has_words = follower.has_words
            if session.in_connect:
                self._unclaimed.clear()
            self._is_used = self._is_used or follower.has_listener(is_explicit=True)
            if self._is_used:
                follower.open_audio(in_full=True)
        return follower

    def use(self) -> ConversationTracker:
        """Keep the audio of turns from now on, because the application uses turns. Any thread."""
        if not self._is_used:
            for event in TurnTracker.HANDLERS:
                load_payload(event)  # before connect(), after which nothing is imported: a process may fork
            with self._lock:
                self._use()
                follower = self._follower
            if follower is not None:
                follower.hear()
        return self

    def _use(self) -> None:
        self._is_used = True
        follower = self._follower
        if follower is None:
            return
        if follower.audio is None:
            follower.open_audio(in_full=True)
        else:
            follower.audio.keep(is_turn_open=self._tracker is not None and not self._tracker.is_idle)

    def forget_audio(self, follower: SessionFollower) -> None:
        """Forget the audio of a session, unless turns have been used since."""
        with self._lock:
            if self._is_used or follower.audio is None:
                return
            follower.audio.forget()
            for ended in self._over.values():
                ended.forget_audio()

    def _start(self, follower: SessionFollower) -> TurnTracker:
        """Return the tracker. If the session has had no event yet, start the session in it first."""
        if self._tracker is None:
            self._tracker = TurnTracker()
        tracker = self._tracker
        if self._started is not follower:
            if self._started is not None:  # the parent's of a fork: nothing has ended it
                tracker.end_session(monotonic())
            self._started = follower
            bot = follower.bot
            tracker.start_session(
                audio_out=bot.capabilities.audio_out is not False,
                version=parse_version(bot.version),
                user_is_muted=follower.user_is_muted,
                has_words=follower.has_words,
                number=follower.number,
            )
        if follower.audio is None:
            follower.open_audio(in_full=self._is_used)
        return tracker

    # -- events: each method returns the events of turns, for the queue -----------------------------------------------

    def take(
        self, follower: SessionFollower, event: RTVIEvent, at: float, data: Any, moment: float | None = None
    ) -> list[Item]:
        """Take an event of the bot from `moment`, or from now; see `TurnTracker.take()`."""
        with self._lock:
            items = self._take_noted() if self.noted else _NOTHING
            if follower is not self._follower:
                return items  # the session has ended
            tracker = self._tracker if follower is self._started else None
            if tracker is None:
                tracker = self._start(follower)
            self._read_audio(follower, tracker, at)
            if event is RTVIEvent.ERROR:
                self._last_error = at, data
            turns = tracker.take(event, at if moment is None else moment, data)
            if turns:
                return items + self._report(follower, tracker, at, turns)
            self._set_timer(follower, tracker)
            return items

    def catch_up(self) -> list[Item]:
        """Take the noted events."""
        with self._lock:
            return self._take_noted()

    def pass_time(self, follower: SessionFollower, now: float) -> list[Item]:
        """Let time pass."""
        with self._lock:
            follower.timer_due = None
            items = self._take_noted()
            if follower is not self._started or (tracker := self._tracker) is None:
                return items
            return items + self._report(follower, tracker, now, tracker.pass_time(now))

    def end_session(self, follower: SessionFollower, at: float, *, lost: bool) -> list[Item]:
        """End the turns of a session."""
        with self._lock:
            items = self._take_noted()
            if follower is not self._follower:
                return items
            if (tracker := self._tracker) is not None and self._started is follower:
                items += self._report(follower, tracker, at, tracker.end_session(at, lost=lost))
            if follower.audio is not None:
                follower.audio.close()
            self._follower = self._started = None
            return items

    def _take_noted(self) -> list[Item]:
        items: list[Item] = []
        while self.noted:
            follower, at, change = self.noted.pop(0)
            if follower is self._follower:  # else that session has ended
                tracker = self._start(follower)
                self._read_audio(follower, tracker, at)
                items += self._report(follower, tracker, at, change(tracker))
        return items

    def _report(self, follower: SessionFollower, tracker: TurnTracker, at: float, turns: list[OpenTurn]) -> list[Item]:
        """Note the turns that have started or ended, set the timer for the next due time, and return the events."""
        items: list[Item] = []
        for number, turn in enumerate(turns):
            if turn.is_over:
                ended = self._ended(follower, at, turn.record(), turns[number + 1 :])
                if follower.is_transcribed and len(self._pending) < MAX_TURNS:
                    self._pending.append(ended)
                else:
                    items += self._tell(follower, ended)
            else:
                if not self._is_used and follower.has_listener(is_explicit=True):
                    self._use()
                items += follower.items_of(RTVIEvent.TURN_STARTED, turn)
        if turns and follower.audio is not None:
            follower.audio.read(tracker.speeches, at)  # from now on it keeps more or less audio
        self._set_timer(follower, tracker)
        return items

    def _tell(self, follower: SessionFollower, ended: EndedTurn) -> list[Item]:
        """Give an ended turn to the calls that wait for it. Return its event."""
        record = ended.record
        if record.message_id in self.asked:
            self.asked.discard(record.message_id)
        elif not any(question.may_be(record) for question in self.speaking.copy()):
            self._unclaimed.append(ended)
            del self._unclaimed[:-MAX_TURNS]
        return follower.items_of(RTVIEvent.TURN_ENDED, ended)

    @staticmethod
    def _set_timer(follower: SessionFollower, tracker: TurnTracker) -> None:
        """Set the timer for the next due time, unless an earlier timer is set."""
        due = tracker.due
        if due is not None and (follower.timer_due is None or follower.timer_due > due):
            follower.call_at(due)

    @staticmethod
    def _read_audio(follower: SessionFollower, tracker: TurnTracker, at: float) -> None:
        """Read the audio before a turn starts, and occasionally during the turn."""
        audio = follower.audio
        if audio is None or not audio.is_read:
            return
        if at >= follower.read_at + _READ_INTERVAL or tracker.is_idle:
            follower.read_at = at
            audio.read(tracker.speeches, at)

    def _ended(self, follower: SessionFollower, at: float, record: TurnRecord, later: Iterable[OpenTurn]) -> EndedTurn:
        """Return an ended turn, with its audio. Keep the audio of `later` turns, which are reported next."""
        assert self._tracker is not None, "it has made the record"
        assert follower.audio is not None, "so something has happened"
        speeches = [
            *self._tracker.speeches,
            *(speech_of(other.timings) for other in later if other.modality == "audio"),
        ]
        ended = EndedTurn(record, follower.bot, follower.audio.cut(record, speeches, at))
        over = self._over
        over[record.number] = ended
        while len(over) > MAX_TURNS:
            del over[next(iter(over))]
        return ended

    # -- words that are found in the audio ----------------------------------------------------------------------------

    @property
    def is_pending(self) -> bool:
        """True if the words of a turn are being found."""
        return bool(self._pending)

    def pending(self, follower: SessionFollower) -> EndedTurn | None:
        """Return the first turn of a session that waits for its words. None: there is none, or no one wants them."""
        if not self._pending or not (self._is_used or follower.has_listener()):
            return None
        return next(iter(self.all_pending(follower)), None)

    def all_pending(self, follower: SessionFollower) -> list[EndedTurn]:
        """Return the turns of a session whose words are not known yet."""
        with self._lock:
            return [ended for ended in self._pending if ended.record.session == follower.number]

    def heard(self, follower: SessionFollower, ended: EndedTurn, text: str | None) -> list[Item] | None:
        """Take the words of a turn, if known. Return its events. None: the turn was published without its words."""
        with self._lock:
            if ended not in self._pending:
                return None
            if text is not None:
                ended.hear(text)
            self._pending.remove(ended)
            return self._tell(follower, ended)

    def await_words(self, follower: SessionFollower, deadline: Deadline) -> bool:
        """Wait until all words of a session are published, if anyone wants them. Return False if `deadline` passed."""
        return self.words_found.wait_for(lambda: self.pending(follower) is None and not follower.is_telling, deadline)

    # -- calls that wait: any thread ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def patience(self, seconds: float) -> Iterator[None]:
        """In the block, let complete answers count as incomplete until the bot has been quiet for `seconds`. If several
        calls wait, the longest value applies.
        """
        if not seconds:
            yield
            return
        call = object()
        try:
            self._patience[call] = seconds
            self._note_patience()
            yield
        finally:
            self._patience.pop(call, None)
            self._note_patience()

    def _note_patience(self) -> None:
        def change(tracker: TurnTracker) -> list[OpenTurn]:
            before, tracker.patience = tracker.patience, max((*self._patience.copy().values(),), default=0.0)
            return tracker.settle(now) if tracker.patience < before else []

        now = monotonic()
        if (follower := self._follower) is not None:
            follower.note(now, change)

    def error_within(self, seconds: float) -> str:
        """Return a sentence with the last error that the bot reported in the last `seconds`. "" if there is none."""
        last = self._last_error
        if last is None or last[0] < monotonic() - seconds:
            return ""
        return f"The bot reported an error: {quoted(last[1].message, MAX_LENGTH)}. "

    @property
    def has_unclaimed(self) -> bool:
        """True if an ended turn was not returned by any call."""
        return bool(self._unclaimed)

    def claim(self) -> Turn | None:
        """Return the first ended turn that no call has returned yet, or None."""
        with self._lock:
            ended = self._unclaimed.pop(0) if self._unclaimed else None
        return ended.turn() if ended is not None else None

    def turns(self) -> tuple[Turn, ...]:
        """Return the last turns, including turns in progress."""
        with self._lock:
            tracker, follower, over = self._tracker, self._follower, self._over.copy()
            records = tracker.turns if tracker is not None else ()
            for ended in self._pending:
                over.pop(ended.record.number, None)
            pending = {ended.record.number for ended in self._pending}
        bot = about_bot(follower.bot) if follower is not None else ""
        return tuple(
            known.turn()
            if (known := over.get(record.number)) is not None
            else turn_of(_as_open(record) if record.number in pending else record, bot=bot)
            for record in records
        )

    def after_fork_in_child(self) -> None:
        """Renew the locks, and forget the waiting calls, whose threads are the parent's."""
        self._lock = new_lock()
        self.noted.clear()
        self._patience.clear()
        if self._tracker is not None:
            self._tracker.patience = 0.0
        self.speaking.clear()
        self.ask_lock.after_fork_in_child()


def _as_open(record: TurnRecord) -> TurnRecord:
    """Return the known part of a turn that counts as in progress until the bot's words are known."""
    return attrs.evolve(record, status="in_progress", timings=attrs.evolve(record.timings, ended=None))


_RECORDED = [field.name for field in attrs.fields(TurnRecord)]


def turn_of(record: TurnRecord, cut: TurnCut | None = None, bot: str = "") -> Turn:
    """Return the turn of a record, with the audio that was cut out for it."""
    fields = {name: getattr(record, name) for name in _RECORDED}
    if cut is not None:
        audio = cut.join()
        fields |= {"timings": audio.timings, "audio": audio.bot, "user_audio": audio.user}
    return Turn(**fields, bot=bot)


def about_bot(bot: BotReadyData) -> str:
    """Return the protocol and library of a bot: "RTVI 2.2.0, pipecat-ai 1.14.0"."""
    library = " ".join(filter(None, (bot.about.library, bot.about.library_version)))
    return one_line(", ".join(filter(None, (f"RTVI {bot.version}" if bot.version else "", library))))
