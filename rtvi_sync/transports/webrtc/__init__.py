"""The parts of `SmallWebRTCTransport`. Nothing here is public."""
