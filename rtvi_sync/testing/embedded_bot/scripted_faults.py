"""Faults of the embedded bot, and when they happen."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import attrs

from rtvi_sync.protocol.validation import COUNT, one_of
from rtvi_sync.testing.embedded_bot.reply import PATTERN, matches

FaultKind: TypeAlias = Literal["drop", "close", "stall", "malformed", "slow", "error", "no_ready"]


@attrs.frozen
class Fault:
    """What goes wrong with an embedded bot. Faults of the network are those of `FaultProxy`.

    All but the last three happen when the reply's first word, or with RTVI 0.3 its first sentence, has been spoken, or
    its first word written if nothing is spoken.

    Attributes:
        kind: "drop": the connection breaks without a close frame. "close": the bot closes it (code 1000). "stall": the
            rest of the reply never comes; the next one does. "malformed": a message that is no JSON comes, then the
            rest. "slow": the reply takes twice its time. "error": the model reports an error in place of the reply.
            "no_ready": `client-ready` is not answered.
        on: a pattern that is searched in what the user said, in any case of letters; or a number, counted from 1 over
            all sessions of the bot, of the question, or with "no_ready" of the session; None: each.
    """

    kind: FaultKind = attrs.field(validator=one_of(*get_args(FaultKind)))
    on: str | int | None = attrs.field(default=None)

    @on.validator
    def _check_on(self, _: object, on: object) -> None:
        rule = PATTERN if isinstance(on, str) else COUNT.or_none
        rule.check_one("on", on)
        if self.kind == "no_ready" and isinstance(on, str):
            raise ValueError('on must be the number of a session for "no_ready", because no question precedes it')


class FaultPlan:
    """The faults of a bot, over all its sessions. Any thread may call it.

    Args:
        faults: as `EmbeddedBot` takes them.
    """

    def __init__(self, faults: Sequence[Fault] = ()) -> None:
        self._faults = faults
        self._questions = itertools.count(1)
        self._sessions = itertools.count(1)

    def begin_session(self) -> bool:
        """Count a session, and tell whether its bot becomes ready."""
        number = next(self._sessions)
        return not any(fault.kind == "no_ready" and fault.on in (None, number) for fault in self._faults)

    def ask(self, said: str) -> FaultKind | None:
        """Count a question, and return what goes wrong with its reply."""
        number = next(self._questions)
        for fault in self._faults:
            fits = matches(fault.on, said) if isinstance(fault.on, str) else fault.on in (None, number)
            if fits and fault.kind != "no_ready":
                return fault.kind
        return None
