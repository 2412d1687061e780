"""The parts of `run.py`; the package rtvi_sync does not import them."""
