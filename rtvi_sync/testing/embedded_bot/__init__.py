"""A small RTVI server for tests and demonstrations."""
