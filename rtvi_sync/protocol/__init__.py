"""The protocol as data and pure functions, without threads, sockets and clocks."""
