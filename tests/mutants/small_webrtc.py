"""Mutants of the WebRTC transport."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/transports/small_webrtc.py",
    ("tests/transports/webrtc/test_fake_peer.py", "tests/transports/test_small_webrtc.py"),
    (
        Mutant(
            "A session begins with the counters of the one before.",
            "        self._audio_sent = self._audio_received = 0.0\n        self._audio_sent_at = -math.inf\n",
            "        self._audio_sent_at = -math.inf\n",
            within="SmallWebRTCTransport.initialize",
        ),
        Mutant(
            "A session begins as if audio had just been sent.",
            "        self._audio_sent_at = -math.inf\n",
            "",
            within="SmallWebRTCTransport.initialize",
        ),
        Mutant(
            "An attempt that was abandoned stores its connection.",
            "            if not abandoned:\n",
            "            if True:\n",
        ),
        Mutant(
            "An attempt that fails leaves its connection open.",
            "            connection.close(0.0)\n",
            "            pass\n",
            within="SmallWebRTCTransport.connect",
        ),
        Mutant(
            "An abandoned attempt names its step in the next one.",
            "            if not abort.aborted:\n",
            "            if True:\n",
            within="SmallWebRTCTransport._begin_step",
        ),
        Mutant(
            "A connection that disconnect() has ended reports its end.",
            "if self._connection is connection:  # otherwise disconnect() was called",
            "if True:",
            reason="a connection that is closed reports nothing, so that only a break amid disconnect() meets it",
        ),
        Mutant(
            "The loop's thread stays if no connection can be made.",
            "            loop.release()\n",
            "            pass\n",
        ),
        Mutant(
            "A machine without an address sends its offer.",
            "if not signalling.candidates(offer):",
            "if False:",
        ),
        Mutant(
            "The size that the bot takes is ignored.",
            "self._bot_takes = answer.max_message_size",
            "pass",
        ),
        Mutant(
            "A message of exactly the bot's size is refused.",
            "if size_bytes > self._bot_takes:",
            "if size_bytes >= self._bot_takes:",
        ),
        Mutant(
            "The next offer names no connection.",
            "connection.pc_id = answer.pc_id",
            "pass",
        ),
        Mutant(
            "An offer goes over http:// though the start endpoint was encrypted.",
            "if self.secure_bundle and not self._allow_insecure:",
            "if False:",
        ),
        Mutant(
            "What comes before `connected` is lost.",
            "            connection.start()\n",
            "            pass\n",
        ),
        Mutant(
            "disconnect() leaves another negotiation running.",
            "            controller.abort()\n",
            "            pass\n",
        ),
        Mutant(
            "Lost messages are not reported.",
            "if unsent and not abandoned:",
            "if False:",
        ),
        Mutant(
            "A second wish of the bot begins another negotiation beside the first.",
            "or (self._renegotiation and not self._renegotiation[0].done.is_set()):",
            "or False:",
        ),
        Mutant(
            "Only the first wish of the bot is followed.",
            "and not self._renegotiation[0].done.is_set()):",
            "):",
        ),
        Mutant(
            "Audio in the microphone's place is not told.",
            "            connection.tell_tracks()\n",
            "            pass\n",
            within="SmallWebRTCTransport.send_audio",
            reason="it is told within a second by what looks once a second; a test of the moment would be a race",
        ),
        Mutant(
            "The microphone counts as off during the silence that follows.",
            "return mic or self._sends_audio, *pictures",
            "return mic, *pictures",
        ),
        Mutant(
            "The microphone counts as on for good.",
            "return monotonic() - self._audio_sent_at < _AUDIO_PAUSE",
            "return self._audio_sent_at > 0",
        ),
        Mutant(
            "A picture is replaced by the next before it is compressed.",
            ".wait(Deadline(None))",
            "",
            within="SmallWebRTCTransport._send_picture",
        ),
        Mutant(
            "Bytes of a session that has ended still wait.",
            "connection.peer.bytes_waiting if self._connection is connection else 0",
            "connection.peer.bytes_waiting",
        ),
        Mutant(
            "The counters end with the session.",
            "connection, self._connection = self._connection, None\n",
            "connection, self._connection = self._connection, None\n            self._last = None\n",
        ),
    ),
)
