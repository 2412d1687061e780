"""rtvi_sync over WebRTC. Its differences from WebSocket have scenarios of their own."""

from __future__ import annotations

from rtvi_sync import SmallWebRTCTransport, Transport

from .ours import Ours


class OursByWebRTC(Ours):
    """A client with `SmallWebRTCTransport`."""

    @staticmethod
    def transport_to_bot(url: str, query: str = "") -> Transport:
        return SmallWebRTCTransport(f"{url}/api/offer{query}", ice_timeout=None)
