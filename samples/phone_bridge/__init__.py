"""A bridge between telephone calls of Twilio and a bot."""
