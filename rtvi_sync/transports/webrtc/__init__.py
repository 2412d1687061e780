"""What `SmallWebRTCTransport` is made of. Nothing here is public."""
