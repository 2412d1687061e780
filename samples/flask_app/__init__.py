"""A page on which to talk to a bot, in writing, and to read what both say."""
