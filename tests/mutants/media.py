"""Mutants of a client's media: its sessions, one after the other, and the events between them."""

from tools.mutants import Module, Mutant

_LIFE = ("tests/client/test_device_life.py",)
_DEVICES = ("tests/client/test_devices.py",)

MODULE = Module(
    "rtvi_sync/media/media.py",
    ("tests/media/test_media.py", "tests/media/test_slot.py", "tests/media/test_status.py"),
    (
        Mutant(
            "Devices are opened though the session has ended.",
            "        if is_first and self._is_over:  # the caller's session has ended in the meantime\n",
            "        if False:\n",
            tests=_LIFE,
        ),
        Mutant(
            "A session goes on after its end.",
            "            self.session = None\n            taken",
            "            taken",
        ),
        Mutant(
            "What was opened stays open if something else can't be.",
            "                self._close(session, Deadline(END_TIMEOUT), Deadline(END_TIMEOUT))\n",
            "                pass\n",
        ),
        Mutant(
            "A missing device that was asked for by its id is no error.",
            "                if choice is not None or self.session is not session:\n                    raise\n",
            "",
        ),
        Mutant(
            "A missing default device ends the session.",
            "                if choice is not None or self.session is not session:\n                    raise\n",
            "                raise\n",
        ),
        Mutant("What is missing is logged each time.", "            self.warned = str(error)\n", ""),
        Mutant("What is missing is not published.", "        self.publish(RTVIEvent.DEVICE_ERROR, error)\n", ""),
        Mutant(
            "The sources start again with each start().",
            "            if session is None or runtime is None or is_started:\n",
            "            if session is None or runtime is None:\n",
            reason="a second start() of a component has no effect",
        ),
        Mutant(
            "The speaker is not told that the bot is ready.",
            "        self.speaker.start(session)\n",
            "",
            tests=("tests/media/test_playback.py", "tests/media/test_sinks.py"),
        ),
        Mutant(
            "An interruption leaves what is queued.",
            "                component.interrupt()\n",
            "                pass\n",
            tests=("tests/media/test_playback.py",),
        ),
        Mutant(
            "Silence between two words is heard after an interruption.",
            "        self._gate.interrupted()\n",
            "",
        ),
        Mutant(
            "Audio with a wrong rate is played.",
            "pcm_tools.is_rate(sample_rate_hz) and",
            "True and",
            tests=("tests/media/test_playback.py",),
        ),
        Mutant(
            "Ignored audio is not counted.",
            "                self._ignored += 1\n",
            "",
            tests=("tests/media/test_playback.py", "tests/transports/test_eval.py"),
        ),
        Mutant(
            "The speaker's track is published with each frame.",
            "            self._bot_heard = True\n",
            "",
            tests=_DEVICES,
        ),
        Mutant(
            "The end of the bot's track is not published.",
            "                if was_published:\n",
            "                if False:\n",
            tests=_DEVICES,
        ),
        Mutant(
            "A track goes on after the session.",
            "                track.end()\n",
            "                pass\n",
            tests=("tests/media/test_tracks.py", "tests/media/test_slot.py"),
        ),
        Mutant("Pictures are converted though they are not read.", "or bool(self.bot_video.readers)", "or True"),
        Mutant(
            "pause() leaves the microphone on.",
            "for slot in (self.mic, self.cam, self.screen):",
            "for slot in (self.cam, self.screen):",
        ),
        Mutant(
            "What was dropped is not logged.",
            "        if seconds := self.counters.speaker_dropped_seconds:\n",
            "        if (seconds := self.counters.speaker_dropped_seconds) < 0:\n",
        ),
        Mutant("Counters go on in the next session.", "            slot.reset()\n", "            pass\n"),
        Mutant(
            "A child of a fork uses its parent's session.",
            "        self.session = self.publisher = self._opening_thread = self._held = self._runtime = None\n",
            "        self.publisher = self._opening_thread = self._held = self._runtime = None\n",
        ),
        Mutant(
            "A child of a fork waits for its parent's lock.",
            "        self.lock = threading.RLock()\n",
            "        pass\n",
            within="Media.after_fork_in_child",
        ),
        Mutant(
            "A microphone that can't be opened counts as on.",
            "                setattr(self.settings, kind, False)\n",
            "",
            tests=_DEVICES,
        ),
        Mutant(
            "Turning the microphone on opens it twice.",
            "        if component is not None:\n            component.look()\n        elif",
            "        if",
            within="Media._enable",
        ),
        Mutant(
            "A choice that can't be opened is kept for later sessions.",
            "            session, choice = self.session, given\n",
            "            session, choice = self.session, given\n            slot.given = given\n",
        ),
        Mutant("A choice is forgotten after the session.", "            slot.given = given\n", "", tests=_DEVICES),
        Mutant(
            "The absence of a device, as chosen, is missed.",
            "                slot.choice = False  # no device is missed\n",
            "                pass\n",
            tests=_LIFE,
            reason="it is looked for once a second, and never opened",
        ),
        Mutant("A session without devices starts the timer thread.", "or self._interval == math.inf", ""),
        Mutant(
            "A device that hangs is not found.",
            "                component.check(now)\n",
            "                pass\n",
            tests=_DEVICES,
        ),
        Mutant(
            "The devices of init_devices() are closed when a session takes them over.",
            "        if runtime is not None:\n            runtime.release()\n",
            "        if runtime is not None:\n            self.stop(1.0)\n            runtime.release()\n",
            tests=_LIFE,
        ),
        Mutant(
            "disconnect() leaves the devices of init_devices() open.",
            "        log_stack_of(self.stop(_CLOSE_TIMEOUT), ",
            "        log_stack_of([], ",
            tests=_LIFE,
        ),
        Mutant(
            "The devices of a dropped client stay open.",
            "            runtime.io.call(self._let_go_apart)\n",
            "            pass\n",
            tests=_LIFE,
        ),
    ),
)
