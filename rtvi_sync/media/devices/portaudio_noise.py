"""Keeps the libraries below PortAudio from writing to the program's standard error.

ALSA and JACK print some 80 lines there when PortAudio begins on a machine without devices, and one at each underrun.
Both take a function to call instead.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys

# Library -> the functions that take a handler. PortAudio's own prints what failed inside it.
_SETTERS = {
    "libasound.so.2": ["snd_lib_error_set_handler"],
    "libjack.so.0": ["jack_set_error_function", "jack_set_info_function"],
    "libportaudio.so.2": ["PaUtil_SetDebugPrintFunction"],
}


def silence() -> None:
    """Silence them for the life of the process. Call it when PyAudio is imported and PortAudio not begun yet.

    The handler is `getpid()` of the C library, which takes no arguments and so ignores the ones it is given. It must be
    no Python function: threads of the libraries would call that at any time, also when the interpreter is gone.
    """
    if sys.platform != "linux":
        return
    import os

    handler = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p)
    for library, setters in _SETTERS.items():
        # Only those that PortAudio brought along: others need no silence, and loading them would be a side effect.
        with contextlib.suppress(OSError):
            loaded = ctypes.CDLL(library, mode=os.RTLD_NOLOAD)
            for setter in setters:
                with contextlib.suppress(AttributeError):
                    getattr(loaded, setter)(handler)
