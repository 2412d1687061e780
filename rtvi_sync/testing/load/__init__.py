"""Many sessions at once, and their figures."""
