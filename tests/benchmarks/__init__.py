"""What measures the package works; how fast anything is, no test asks."""
