"""One session: connecting, events, the end, reconnecting."""
