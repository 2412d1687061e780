"""Network faults at chosen moments of a connection."""
