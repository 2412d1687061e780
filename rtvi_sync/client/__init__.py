"""The client: its facade, its options, and one session after the other."""
