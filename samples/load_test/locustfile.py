"""The users of the load test: some type, some speak. `locust -f` takes this file as it is."""

from pathlib import Path

from locust import between, task

import rtvi_sync
from rtvi_sync.locust import RTVIUser
from rtvi_sync.media import BytesSource, WavSource
from rtvi_sync.testing import MeasuredClient

SPEECH = WavSource(Path(rtvi_sync.__file__).with_name("cli") / "speech.wav", 16_000)


class Typist(RTVIUser):
    """A user who asks in writing; each call is a session of its own."""

    wait_time = between(0.5, 1)

    @task
    def call(self) -> None:
        """Send a text, and wait for the answer."""
        with self.client as client:
            # If your bot answers requests: client.send_client_request("get-order", {"number": 7}, timeout=5)
            client.send_text("What time is it?", audio_response=False)
            client.wait_for_answer(timeout=10)


class Speaker(RTVIUser):
    """A user who plays the WAV file, and waits for the complete answer."""

    wait_time = between(1, 3)

    def make_client(self) -> MeasuredClient:
        """Return a client whose microphone plays the WAV file."""
        # Each client needs a source of its own; they share the samples.
        voice = BytesSource(SPEECH.samples(0, SPEECH.total_frames or 0), SPEECH.sample_rate_hz)
        return MeasuredClient.for_url(self.host or "", mic=voice)

    @task
    def call(self) -> None:
        """Wait for the answer to the WAV file."""
        with self.client as client:
            client.wait_for_answer(timeout=30)
