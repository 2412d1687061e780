"""Mutants of the modules whose faults cost most: see `tools.mutants`, and `run.py mutants`."""
