"""The conversation in a client's sessions: its turns, the questions, and the expectations of tests."""
