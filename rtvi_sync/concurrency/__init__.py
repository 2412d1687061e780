"""Threads, deadlines and queues. Nothing in this layer knows RTVI."""
