"""Measurements of the SDK's costs: each module is a program."""
