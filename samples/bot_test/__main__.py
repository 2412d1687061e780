"""Run the tests of a voice bot in this folder, with the options of pytest.

    python3 run.py sample bot_test --url http://localhost:7860

`--url` is short for the plugin's own `--rtvi-url`.
Without a URL they test an embedded bot, which gives the answers of samples/local_bot.
"""

import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    # Where the package is installed, pytest finds its plugin by itself.
    plugin = ["-p", "rtvi_sync.testing.pytest_plugin", "-p", "no:cacheprovider"]
    options = ["--rtvi-url" + option[5:] if option.split("=")[0] == "--url" else option for option in sys.argv[1:]]
    sys.exit(pytest.main([*plugin, str(Path(__file__).parent), *options]))
