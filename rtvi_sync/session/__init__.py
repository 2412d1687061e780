"""One session: its connection, events, end and replacement."""
