"""Floor 1: threads, deadlines, queues. Nothing here knows a word of RTVI."""
