"""The end of the session of a client that is dropped while connected."""

from __future__ import annotations

import warnings
import weakref

from ..protocol.states import CloseInfo
from ..session.session import Session


class SessionWatch:
    """The session as the finalizer of a client knows it.

    The reference is weak, because the error that ended a session refers, by its traceback, to the client: a finalizer
    with a strong one would keep the client for ever. A live session is kept by the registry of sessions.
    """

    def __init__(self) -> None:
        self._session: weakref.ref[Session] | None = None
        #: The client was collected.
        self.is_dropped: bool = False

    def begin(self, session: Session) -> None:
        """Store the client's current session."""
        self._session = weakref.ref(session)

    def collected(self) -> None:
        """End the session, if it is live: the client was collected."""
        self.is_dropped = True  # first: a session that begins now looks for it
        session = self._session() if self._session is not None else None
        if session is None or not session.live:
            return
        # A finalizer may run anywhere, even under a lock, so it only gives the I/O thread a call to run.
        session.runtime.io.call(lambda: session.ending.begin(CloseInfo(initiator="client")))
        warnings.warn(
            "An RTVIClient was dropped while connected; its session is ended. "
            "Call disconnect(), or use `with client:`.",
            ResourceWarning,
            stacklevel=2,
        )
