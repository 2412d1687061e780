"""Messages that a bot of a protocol version knows, by the table of dialects, and version negotiation. Pure."""

from __future__ import annotations

from typing import Any, Final

import attrs

from rtvi_sync.protocol.dialects import (
    FIELDS,
    INBOUND,
    OUTBOUND,
    VERSIONS,
    FieldSpec,
    MessageSpec,
    Version,
    parse_version,
)

_NEWEST: Final = max(VERSIONS)
NEWEST: Final = f"{_NEWEST[0]}.{_NEWEST[1]}.0"


@attrs.frozen
class BotVersion:
    """The protocol version of a bot.

    Attributes:
        text: as in `bot-ready`. A string that is no version stands for the newest one, but is sent as it is.
        number: its major and minor number.
    """

    text: str
    number: Version = attrs.field(init=False)

    @number.default
    def _number_of_version(self) -> Version:
        return parse_version(self.text) or _NEWEST

    @property
    def generation(self) -> int:
        """Return 0, 1 or 2: the major number, where later ones count as 2."""
        return min(2, self.number[0])

    def accepts(self, type: str) -> bool:
        """Return whether such a bot knows a client's message of this type."""
        spec = OUTBOUND.get(type)
        return spec is not None and self._knows(spec)

    def sends(self, type: str) -> bool:
        """Return whether such a bot sends messages of this type; types that are not in the table are always sent."""
        spec = INBOUND.get(type)
        return spec is None or self._knows(spec)

    def accepts_field(self, field: str) -> bool:
        """Return whether such a bot knows this field ("type.field") of a client's message."""
        return self._knows(FIELDS[field])

    def _knows(self, spec: MessageSpec | FieldSpec) -> bool:
        return (spec.since or self.number) <= self.number and (spec.until is None or self.number < spec.until)


@attrs.frozen(kw_only=True)
class Negotiation:
    """A bot's answer to the version of a client.

    Attributes:
        version: the version in `bot-ready`.
        generation: whose `bot-output` the client gets.
        warning: sent before `bot-ready` if the client's version does not fit; else "".
        tells_config: True if `bot-ready` holds the bot's config.
    """

    version: str
    generation: int
    warning: str = ""
    includes_config: bool = False


def negotiate(bot_version: BotVersion, client_version: Any, *, has_services: bool) -> Negotiation:
    """Negotiate a version as bots of Pipecat do.

    Args:
        mode: the bot's.
        client_version: the version in `client-ready`, any JSON or None.
        has_services: True if the bot has a config or actions. Such bots of 1.x (Pipecat before 1.0) warn no client,
            and take a client without a valid version for one of 0.3.
    """
    if bot_version.generation == 0:
        return Negotiation(version=bot_version.text, generation=0, includes_config=True)
    numbers = _numbers(client_version)
    if bot_version.generation == 1 and has_services:
        return Negotiation(version=bot_version.text, generation=1, includes_config=not numbers or numbers[0] == 0)
    negotiation = Negotiation(version=bot_version.text, generation=bot_version.generation)
    if not isinstance(client_version, str) or not client_version:
        return attrs.evolve(negotiation, warning="Client version unknown.")
    if len(numbers) != 3:
        return attrs.evolve(negotiation, warning=f"Invalid client version format ({client_version}).")
    if numbers[0] == bot_version.number[0]:
        return negotiation
    if numbers[0] == 1:
        return Negotiation(version=client_version, generation=1)
    reason = f"RTVI version {client_version} is not compatible with server protocol {bot_version.text}."
    return attrs.evolve(negotiation, warning=reason)


def _numbers(version: Any) -> list[int]:
    """Return the numbers of a version; an empty list for anything that is no version."""
    parts = version.split(".") if isinstance(version, str) else []
    return [int(part) for part in parts] if all(part.isdecimal() and len(part) < 6 for part in parts) else []
