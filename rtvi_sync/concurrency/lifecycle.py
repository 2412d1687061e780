"""placeholder while the house is being built"""
from __future__ import annotations
import itertools
import threading
from collections.abc import Callable
from typing import Any

_numbers = itertools.count(1)


def start_thread(role: str, target: Callable[..., object], *args: Any) -> threading.Thread:
    """Start a daemon thread named ``rtvi-<role>-<n>``; the one place where threads of this package begin."""
    thread = threading.Thread(target=target, args=args, name=f"rtvi-{role}-{next(_numbers)}", daemon=True)
    thread.start()
    return thread
