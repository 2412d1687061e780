"""What is kept and made of a conversation: who said what, how fast the bot was, what both sounded like."""
