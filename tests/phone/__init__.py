"""The sample of a telephone bridge, called by a client that speaks as Twilio documents it."""
