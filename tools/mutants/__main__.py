"""Test the mutants: `python -m tools.mutants [-j2] [NAME ...]`."""

import signal
import sys

from tools.machine import ROOT
from tools.mutants import main

signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the tests end with this process
sys.exit(main(sys.argv[1:], ROOT))
