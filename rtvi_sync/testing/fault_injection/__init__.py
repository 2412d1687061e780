"""Injection of network faults at chosen moments of a connection."""
