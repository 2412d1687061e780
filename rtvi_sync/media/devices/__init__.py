"""Microphones, speakers and cameras of this machine."""
