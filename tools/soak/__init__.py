"""The soak: sessions open and close under injected faults, and no resource may grow. See docs/background/soak.md."""
