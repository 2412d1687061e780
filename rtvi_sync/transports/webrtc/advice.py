"""Advice about a WebRTC connection that does not open, for error texts. Addresses are not part of them."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from ...concurrency.lifecycle import what_to_do
from .peer import ICEServer
from .signalling import candidates

_NO_ADDRESS = (
    "This machine has no address for WebRTC: it has no network but loopback, which WebRTC does not use. "
    "Connect it to a network, or use WebSocket"
)
_FIREWALL = (
    "A firewall blocks UDP, or the bot is behind a NAT: give a TURN server, "
    "ice_servers=[{'urls': 'turn:host:3478?transport=tcp', 'username': ..., 'credential': ...}], or use WebSocket"
)


def for_no_address() -> str:
    """Return why an offer has no address, with advice. aioice hides the reason why a socket cannot be opened."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("", 0))
    except OSError as error:
        advice = what_to_do(error) or "Let this process use UDP, or use WebSocket"
        return f"No UDP socket can be opened for WebRTC: {error}. {advice}"
    return _NO_ADDRESS


def for_gathering(servers: Sequence[ICEServer]) -> str | None:
    """Return the advice about a search for addresses that takes long; None without ICE servers."""
    if not servers:
        return None
    return (
        "Check the STUN and TURN servers (ice_servers, or iceConfig of the start endpoint), leave out those that do "
        "not answer, or raise connect_timeout to more than 5 s"
    )


def for_step(step: str, offer: str, answer: str, servers: Sequence[ICEServer]) -> str:
    """Return the advice about a connection that waits for `step` of the peer, in a sentence or more.

    Args:
        step: the missing step.
        offer, answer: the session descriptions.
        servers: the servers that were asked for addresses.
    """
    if not step.startswith("ICE"):
        return f"The bot was reached, but {step} is missing. See the bot's log"
    ours, theirs = (_kinds(description) for description in (offer, answer))
    silent = [
        f"No {name} server has given an address: {why}. "
        for name, kind, why in (
            ("STUN", "srflx", "it does not answer"),
            ("TURN", "relay", "it does not answer, or refuses username and credential"),
        )
        if kind not in ours and any(url.startswith(name.lower()) for server in servers for url in server.urls)
    ]
    addresses = f"our addresses: {', '.join(ours)}; the bot's: {', '.join(theirs)}"
    return f"No network packet came from the bot ({addresses}). {''.join(silent)}{_FIREWALL}"


def for_silent_bot() -> str:
    """Return the advice about a bot that is not ready though the connection is open."""
    return (
        "The WebRTC connection is open. Pipecat's server also opens it for a bot whose bot() has failed, or that lacks "
        'the entry "webrtc" in its transport_params: see the bot\'s log. A bot without RTVI (in Pipecat: '
        "enable_rtvi=False) is never ready. A bot of RTVI 0.3 is not ready either if it does not know its config. For "
        "a slow bot, raise connect_timeout"
    )


def _kinds(description: str) -> list[str]:
    return [*dict.fromkeys(each.split()[0] for each in candidates(description))]
