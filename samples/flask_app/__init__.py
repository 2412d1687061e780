"""A page on which to talk to a bot, by voice and in writing."""
