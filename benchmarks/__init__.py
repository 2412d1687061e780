"""What the SDK costs, measured: each module is a program."""
