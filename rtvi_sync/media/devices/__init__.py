"""Drivers of the microphones, speakers and cameras of this machine."""
