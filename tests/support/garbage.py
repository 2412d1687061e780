"""Garbage that is collected when a test says so."""

from __future__ import annotations

import gc
import threading


def collect() -> None:
    """Collect all garbage. `gc.collect()` alone does nothing while another thread collects."""
    collected: list[str] = []
    this = threading.get_ident()

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2 and threading.get_ident() == this:
            collected.append(phase)

    gc.callbacks.append(note)
    try:
        while not collected:
            gc.collect()
    finally:
        gc.callbacks.remove(note)
