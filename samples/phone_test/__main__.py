"""Call a voice bot as the telephone network does, with the options of pytest.

    python3 run.py sample phone_test --url ws://localhost:7860/ws

`--url` is short for the plugin's own `--rtvi-url`. `--rtvi-transport telnyx` (plivo, exotel, webrtc, websocket) reaches
the bot in another way; without it the tests are Twilio. Without a URL they call an embedded bot.
"""

import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    # Where the package is installed, pytest finds its plugin by itself.
    plugin = ["-p", "rtvi_sync.testing.pytest_plugin", "-p", "no:cacheprovider"]
    options = ["--rtvi-url" + option[5:] if option.split("=")[0] == "--url" else option for option in sys.argv[1:]]
    sys.exit(pytest.main([*plugin, "--rtvi-transport=twilio", str(Path(__file__).parent), *options]))
