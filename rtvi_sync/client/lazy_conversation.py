"""The conversation of a client, which is followed from the first call or handler that needs it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ..concurrency.lifecycle import register_for_fork
from ..events import RTVIEvent
from ..session.dispatcher import Dispatcher
from .session_manager import SessionManager

if TYPE_CHECKING:
    from .ask import AskLock
    from .conversation import ConversationTracker

_TURNS = frozenset({RTVIEvent.TURN_STARTED, RTVIEvent.TURN_ENDED})


class LazyConversation:
    """Starts to follow the turns of a client when a call asks for them. Any thread.

    Args:
        dispatcher, manager: The client's dispatcher and session manager.
        max_turn_audio: seconds of the bot's audio that a turn keeps.
    """

    def __init__(self, dispatcher: Dispatcher, manager: SessionManager, max_turn_audio: float) -> None:
        self._dispatcher = dispatcher
        self._manager = manager
        self._max_turn_audio = max_turn_audio
        # Guards `_conversation`. The first thread that asks holds it while it starts to follow the session; re-entrant,
        # because a signal handler may ask meanwhile.
        self._lock = threading.RLock()
        self._conversation: ConversationTracker | None = None
        self._follows = False  # the session of that moment, if any
        #: Held by the thread that asks; made with the conversation.
        self.ask_lock: AskLock
        register_for_fork(self)

    def get(self) -> ConversationTracker:
        """Return the conversation; the first call starts to follow it.

        Raises:
            ForkedProcessError: the session is the parent's.
        """
        self._dispatcher.check_process()
        from .ask import AskLock  # most clients need neither
        from .conversation import ConversationTracker

        with self._lock:
            conversation = self._conversation
            if conversation is None:
                self.ask_lock = AskLock()
                conversation = self._conversation = ConversationTracker(
                    self._dispatcher, max_turn_audio=self._max_turn_audio
                )
            if not self._follows:  # also after a first call that Ctrl-C has interrupted
                if (session := self._manager.last_session) is not None:
                    conversation.follow(session)  # unless it is not ready yet: then it will be followed when it is
                self._follows = True
        return conversation

    def begin_for(self, *events: RTVIEvent) -> None:
        """Start to follow it if one of `events` reports turns."""
        if not _TURNS.isdisjoint(events):
            self.get()

    def after_fork_in_child(self) -> None:
        """Release the locks, which threads of the parent may hold."""
        self._lock = threading.RLock()
        if self._conversation is not None:
            self.ask_lock.after_fork_in_child()
