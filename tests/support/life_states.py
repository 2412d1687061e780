"""The states that clients go through, observed at each place that can change one: the one place that knows them."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from rtvi_sync.client.life import FOLLOWING, Life, State
from rtvi_sync.session.session import Session

#: The methods that change the inputs of the state.
_MOVES: tuple[tuple[type, str], ...] = (
    (Life, "_let_hold"),
    (Session, "_enter"),
    (Session, "_fail_calls"),
    (Session, "_become_ready"),
)


class Changes:
    """The changes of the states of all clients."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: weakref.WeakKeyDictionary[Life, State] = weakref.WeakKeyDictionary()
        self.seen: set[tuple[State, State]] = set()

    def look(self, part: Any) -> None:
        """Note the state of a client of which a part has changed."""
        owner = getattr(part, "_owner", None)
        life = part if isinstance(part, Life) else owner._life() if owner is not None else None
        if life is None:
            return
        with self._lock:
            before, after = self._states.get(life, State.IDLE), life.state
            self._states[life] = after
            if before is not after:
                self.seen.add((before, after))

    def wrong(self) -> set[tuple[State, State]]:
        """Return the changes that the table does not allow, not even as two changes at once."""
        return {
            (before, after)
            for before, after in self.seen
            if after not in FOLLOWING[before] and not any(after in FOLLOWING[each] for each in FOLLOWING[before])
        }


@contextlib.contextmanager
def observed_lives() -> Iterator[Changes]:
    """Observe all clients in the block."""
    changes = Changes()

    def observing(real: Any) -> Any:
        def instead(part: Any, *arguments: Any, **options: Any) -> Any:
            result = real(part, *arguments, **options)
            changes.look(part)
            return result

        return instead

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in _MOVES:
            patch.setattr(owner, name, observing(getattr(owner, name)))
        yield changes
