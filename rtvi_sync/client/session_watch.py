"""What becomes of the session of a client that is dropped while connected."""

from __future__ import annotations

import warnings
import weakref

from ..protocol.states import CloseInfo
from ..session.session import Session


class SessionWatch:
    """What the finalizer of a client knows of its session.

    It is weak, because the error that ended a session refers, by its traceback, to the client: a finalizer that knew
    it would keep the client for ever. A live session is kept by the register of sessions.
    """

    def __init__(self) -> None:
        self._session: weakref.ref[Session] | None = None

    def begin(self, session: Session) -> None:
        """This is the client's session now."""
        self._session = weakref.ref(session)

    def collected(self) -> None:
        """The client was collected: its session, if it is live, is torn down."""
        session = self._session() if self._session is not None else None
        if session is None or not session.live:
            return
        # A finalizer may run anywhere, even under a lock: it only leaves a note for the io thread.
        session.runtime.io.call(lambda: session.ending.begin(CloseInfo(initiator="client")))
        warnings.warn(
            "An RTVIClient was dropped while connected; its session is ended. "
            "Call disconnect(), or use `with client:`.",
            ResourceWarning,
            stacklevel=2,
        )
