"""Transports, which carry messages and media between the client and the bot, and the HTTP requests around them."""
