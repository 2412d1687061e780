"""Pipecat's eval scenarios: files of conversations, and what the bot must do in them."""
