"""Floor 0: the protocol as data and pure functions. No thread, no socket, no clock."""
