"""Suppression of the messages that libraries below PortAudio write to standard error.

ALSA and JACK print about 80 lines there when PortAudio initializes on a machine without devices, and one at each
underrun. Both accept a function to call instead.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys

# Library -> the functions that set a handler. PortAudio's own messages are about its internal failures.
_SETTERS = {
    "libasound.so.2": ["snd_lib_error_set_handler"],
    "libjack.so.0": ["jack_set_error_function", "jack_set_info_function"],
    "libportaudio.so.2": ["PaUtil_SetDebugPrintFunction"],
}


def silence() -> None:
    """Silence these libraries for the life of the process.

    Call it after the import of the library that binds PortAudio, and before PortAudio is initialized.

    The handler is `getpid()` of the C library, which takes no arguments and so ignores those that it is given. It must
    not be a Python function: threads of the libraries would call it at any time, also after the interpreter's end.
    """
    if sys.platform != "linux":
        return
    import os

    handler = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p)
    for library, setters in _SETTERS.items():
        # Only libraries that PortAudio has loaded need a handler; loading others would be a side effect.
        with contextlib.suppress(OSError):
            loaded = ctypes.CDLL(library, mode=os.RTLD_NOLOAD)
            for setter in setters:
                with contextlib.suppress(AttributeError):
                    getattr(loaded, setter)(handler)
