"""Tests of a voice bot with pytest."""
