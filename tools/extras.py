"""A program for each extra, which does the job that docs/start/install.md names. The rehearsal of a release runs it."""

from __future__ import annotations

from typing import Final

# With a device or without one, the library is there.
_MICS: Final = """\
from rtvi_sync import RTVIClient
print(RTVIClient.for_url("http://localhost:7860", audio_backend={!r}).get_all_mics())
"""
JOBS: Final = {
    "audio": _MICS.format("pyaudio"),
    "sounddevice": _MICS.format("sounddevice"),
    "aec": """\
from rtvi_sync import RTVIClient
RTVIClient.for_url("http://localhost:7860", echo_cancellation=True)
""",
    "video": """\
from rtvi_sync import RTVIClient
print(RTVIClient.for_url("http://localhost:7860").get_all_cams())
""",
    "screen": """\
from rtvi_sync.media import ScreenSource
ScreenSource()
""",
    "resample": """\
import wave
from rtvi_sync.media import WavSource
with wave.open("a.wav", "wb") as file:
    file.setparams((1, 2, 44100, 0, "NONE", ""))
    file.writeframes(bytes(88200))
assert WavSource("a.wav", 16000).sample_rate_hz == 16000
""",
    "files": """\
import soundfile
from rtvi_sync.media import WavSource
soundfile.write("a.flac", [0.5] * 8000, 8000)
assert WavSource("a.flac").sample_rate_hz == 8000
""",
    "cli": """\
import prompt_toolkit, rich, subprocess, sys
sys.exit(subprocess.run([sys.executable, "-m", "rtvi_sync", "demo"], timeout=120).returncode)
""",
    "speed": """\
import orjson
from rtvi_sync import connect
from rtvi_sync.testing import EmbeddedBot
with EmbeddedBot() as bot, connect(bot.base_url, text_only=True) as client:
    client.ask("Hello")
""",
    "flask": """\
from flask import Flask
from rtvi_sync import RTVIClient
from rtvi_sync.flask import RTVIBlueprint
app = Flask(__name__)
app.secret_key = "x"
app.register_blueprint(RTVIBlueprint(lambda request: RTVIClient.for_url("http://localhost:7860")))
""",
    "django": """\
from django.conf import settings
settings.configure(SECRET_KEY="x")
from rtvi_sync import RTVIClient
from rtvi_sync.django import RTVIVoice
assert RTVIVoice(lambda request: RTVIClient.for_url("http://localhost:7860")).urls
""",
    "notebook": """\
from IPython.display import display
from rtvi_sync import RTVIClient
from rtvi_sync.notebook import Conversation
display(Conversation(RTVIClient.for_url("http://localhost:7860")))
""",
    "locust": """\
from rtvi_sync.locust import RTVIUser
""",
    "otel": """\
from rtvi_sync import RTVIClient
from rtvi_sync.otel import instrument
instrument(RTVIClient.for_url("http://localhost:7860"))
""",
    "mcp": """\
import subprocess, sys
server = [sys.executable, "-m", "rtvi_sync", "mcp"]
sys.exit(subprocess.run(server, stdin=subprocess.DEVNULL, timeout=120).returncode)
""",
    "scenarios": """\
from pathlib import Path
from rtvi_sync.testing import scenarios
Path("a.yaml").write_text("name: a\\nturns: [{user: Hello}]\\n")
assert scenarios.load("a.yaml")
""",
    "webrtc": """\
from rtvi_sync import RTVIClient, SmallWebRTCTransport
RTVIClient(transport=SmallWebRTCTransport("http://localhost:7860/api/offer"))
""",
}
