"""Which session uses a source or sink: one at a time."""

from __future__ import annotations

from ..concurrency.deadline import Deadline
from ..concurrency.latch import Latch
from ..concurrency.lifecycle import fork_generation
from ..errors import DeviceError

# The lease of each source and sink in use. The fork generation is part of the key because a child process inherits the
# entries of sessions that are live only in its parent. Only single dict operations access it, which are atomic with and
# without a GIL; a lock could be inherited in the locked state.
_leases: dict[tuple[int, object], Lease] = {}


def lease_key_of(thing: object) -> object:
    """Return what stands for a source or sink: its own `lease_key`, or its id."""
    return getattr(thing, "lease_key", None) or id(thing)


class Lease:
    """The right of one session to use a source or sink; objects with the same `lease_key` count as one.

    Args:
        thing: the source or sink.
        device: its kind, for the error.
        deadline: limit of the wait for a lease that is about to end; None: there is no wait.

    Raises:
        DeviceError: another session uses it; `.type` is "in-use".
    """

    def __init__(self, thing: object, device: str, deadline: Deadline | None = None) -> None:
        self._thing = thing  # kept alive, so that no other object gets its id
        self._key = (fork_generation(), lease_key_of(thing))
        self._released = Latch()
        self._ends = False
        while (holder := _leases.setdefault(self._key, self)) is not self:
            if deadline is not None and holder._ends and holder._released.wait(deadline):
                continue
            name = repr(thing) if hasattr(thing, "lease_key") else f"This {type(thing).__name__}"
            question = ", by a question of this client," if device == "mic" else ""
            used = f"is used by another session{question} or by this one already; give each a {device} of its own"
            if holder._ends:
                used = "was used before, and a call of its methods has not returned yet; let them return sooner"
            raise DeviceError(
                f"{name} {used}",
                devices=(device,),
                type="in-use",
            )

    @property
    def is_released(self) -> bool:
        """Tell whether it has ended."""
        return self._released.is_set()

    def end_soon(self) -> None:
        """Note that its holder will release it as soon as a call of the source that is under way returns."""
        self._ends = True

    def release(self) -> None:
        """End the lease; called once."""
        _leases.pop(self._key, None)
        self._released.set()

    @staticmethod
    def leased() -> list[object]:
        """Return the sources and sinks that sessions of this process use now."""
        return [lease._thing for key, lease in _leases.copy().items() if key[0] == fork_generation()]
