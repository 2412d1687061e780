"""Load tests: many sessions at once, and their measurements."""
