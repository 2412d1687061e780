"""What `run.py` is made of; the package rtvi_sync does not use it."""
