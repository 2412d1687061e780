"""How programs that use the package live and die: interrupts, signals, exits, errors, collection."""
