"""Tests of a phone bot with pytest, without a phone."""
