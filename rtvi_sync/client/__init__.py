"""The client: its facade, its options, and its sessions, one after the other."""
