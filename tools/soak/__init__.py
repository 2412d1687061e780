"""The soak: sessions come and go for as long as one likes, faults strike, and nothing may grow. See docs/soak.md."""
