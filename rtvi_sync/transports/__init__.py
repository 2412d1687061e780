"""Floor 3: what carries messages and media between client and bot, and the HTTP requests around it."""
