"""`python -m rtvi_sync`: the commands of `rtvi_sync.cli`."""

import sys

from .cli import main

sys.exit(main())
