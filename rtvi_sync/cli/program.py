"""The end of a program: its exit status, and one line for an error that its code did not cause."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable

from rtvi_sync import ConnectError, RTVIError
from rtvi_sync.protocol.validation import STRING, function_taking
from rtvi_sync.recording.text import clean

FAILED = 1
INTERRUPTED = 130


def run_program(main: Callable[[], int | None], name: str = "") -> int:
    """Run a program and return its exit status: ``sys.exit(run_program(main))``.

    An `RTVIError`, an `OSError` and a package that is not installed are reported in one line on stderr, and a
    `ConnectError` of several transports in one line for each. Any other exception is a bug in the program, and keeps
    its traceback.

    Args:
        main: the program. It returns its exit status; None means 0.
        name: the prefix of the line.

    Returns:
        The status: what `main()` returned, 1 after an error, or 130 after Ctrl-C.
    """
    function_taking().check(main=main)
    STRING.check(name=name)
    try:
        status = main()
        print(end="", flush=True)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe. The buffered rest must not fail again when the interpreter exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return FAILED
    except ModuleNotFoundError as error:
        return _failed(name, f"{error}. Install the package that has it, with pip")
    except ConnectError as error:
        return _failed(name, *str(error).split("\n"))  # one line for each way that was tried
    except (RTVIError, OSError) as error:
        return _failed(name, str(error) or type(error).__name__)  # the TimeoutError of a future has no text
    return status or 0


def _failed(name: str, *reason: str) -> int:
    first, *others = (clean(" ".join(line.split())) for line in reason)
    with contextlib.suppress(OSError):
        print(*(f"{name}: {first}" if name else first, *others), sep="\n  ", file=sys.stderr)
    return FAILED
