"""Mutants of the slots: devices opened, replaced and closed, and the limits of a late opening."""

from tools.mutants import Module, Mutant

_LIFE = ("tests/client/test_device_life.py",)
_DEVICES = ("tests/client/test_devices.py",)

MODULE = Module(
    "rtvi_sync/media/slot.py",
    ("tests/media/test_slot.py", "tests/media/test_media.py", "tests/media/test_status.py"),
    (
        Mutant(
            "A device that opens late is put into the slot of an ended session.",
            "                is_current = self._media.session is session\n",
            "                is_current = True\n",
        ),
        Mutant(
            "A device that opens late is not ended.",
            "            self._end(component)\n            return False\n",
            "            return False\n",
            within="Slot._put_in",
        ),
        Mutant(
            "A call whose session has ended meanwhile succeeds.",
            "        if not self._put_in(component, choice, session):\n",
            "        if self._put_in(component, choice, session) is None:\n",
        ),
        Mutant(
            "A new component is not started though the bot is ready.",
            "        if senders is not None:\n            component.start(*senders)\n",
            "",
        ),
        Mutant(
            "A component that is open when the bot becomes ready is not started.",
            "        if component is not None:\n            component.start(*senders)\n",
            "",
            within="Slot.start",
        ),
        Mutant(
            "A replaced component goes on until the new one has started.",
            "        if old is not None:\n            self.halt(old)\n",
            "",
            reason="it is halted a few steps later",
        ),
        Mutant(
            "A replaced component is not waited for.",
            "        if old is not None:\n            self._end(old)\n",
            "",
        ),
        Mutant(
            "A replacement gets a track of its own.",
            "made = None if self.track is not None else self._make_track()",
            "self.track = None; made = self._make_track()",
            within="Slot._put_in",
        ),
        Mutant(
            "A track is published with each replacement.",
            "        if made is not None:\n            self._publish_track(made)\n",
            "        if self.track is not None:\n            self._publish_track(self.track)\n",
        ),
        Mutant("The end of a track is not published.", "        self._publish_track(track)\n", "", tests=_DEVICES),
        Mutant(
            "What is in the slot already is opened again.",
            "return self.component is not None and not self.component.ended and choice == self.choice",
            "return False",
        ),
        Mutant(
            "What has ended goes on for ever.",
            "self.component is not None and not self.component.ended and",
            "self.component is not None and",
            within="Slot.holds",
        ),
        Mutant(
            "A source that has ended keeps its lease when it is chosen again.",
            "            self._end(self.component)  # its lease is on what is opened again\n",
            "            pass\n",
        ),
        Mutant("A microphone that is off is opened.", "media.settings.opens(self.kind) or", "True or", tests=_DEVICES),
        Mutant(
            "A source of the application waits until the microphone is on.",
            "or not is_device(choice))",
            "or False)",
            tests=(*_DEVICES, "tests/media/test_capture.py"),
        ),
        Mutant(
            "A device is opened that the transport does not carry.",
            "and self.kind in media.carried",
            "",
            tests=_DEVICES,
        ),
        Mutant(
            "A sound card that serves one stream is not released for another device.",
            "            component = self._open_after_release(choice, session)\n",
            "            raise\n",
            tests=_DEVICES,
        ),
        Mutant(
            "A device is not opened again after its replacement has failed.",
            "                self._put_in(self._make(self.choice, Deadline(OPEN_TIMEOUT)), self.choice, session)\n",
            "                pass\n",
            tests=_DEVICES,
        ),
        Mutant(
            "Losses of what was replaced are forgotten.",
            "                self._add_losses_of(component, self._lost)\n",
            "                pass\n",
        ),
        Mutant(
            "Losses of what was replaced count twice.",
            "                self._leaving.remove(component)\n",
            "",
        ),
        Mutant(
            "Losses of the last session count on.",
            "        self._leaving, self._abandoned, self._lost = [], [], Counter()\n",
            "",
            within="Slot.reset",
        ),
        Mutant(
            "A replaced source that hangs is not told at the end.",
            "                self._abandoned.append(component)\n",
            "                pass\n",
        ),
        Mutant(
            "A failure leaves the status as it was.",
            "        self.error(error)\n        event",
            "        event",
            tests=_DEVICES,
        ),
        Mutant("A status is published though it has not changed.", "and self.status is not status", ""),
        Mutant("What is missing is logged no second time.", '        self._media.warned = ""\n', ""),
        Mutant(
            "The audio that a speaker has not played is lost when it is replaced.",
            "            new.write(frame.pcm, frame.sample_rate_hz)\n",
            "            pass\n",
            tests=(*_DEVICES, *_LIFE, "tests/media/test_playback.py"),
        ),
        Mutant(
            "A replaced sink gets no more of its audio.",
            "goes_on = component.drain(deadline, END_TIMEOUT)",
            "goes_on = False",
            tests=("tests/media/test_playback.py",),
        ),
        Mutant(
            "A replaced sink that still takes audio at the end is forgotten.",
            "[sink for sink in sinks if isinstance(sink, QueuedSpeaker)]",
            "[]",
            tests=("tests/media/test_playback.py",),
        ),
        Mutant(
            "Audio that a sink has not taken is dropped without a word.",
            "        if seconds := speaker.cut():\n",
            "        if (seconds := speaker.cut()) < 0:\n",
            tests=("tests/media/test_playback.py",),
        ),
        Mutant(
            "The last source does not replace the microphone.",
            "self._inserted[sender] = self._in_place = source",
            "self._inserted[sender] = source",
        ),
        Mutant(
            "The microphone is sent beside a source in its place.",
            "            if self._in_place is place:\n",
            "            if True:\n",
        ),
        Mutant(
            "The samples of the microphone's source are lost while another one speaks.",
            "return self._media.settings.mic and self._in_place is None",
            "return self._media.settings.mic",
        ),
        Mutant(
            "After the last source nothing speaks.",
            "            self._in_place = next(reversed(self._inserted.values()), None)\n",
            "",
        ),
        Mutant(
            "After the second source the microphone speaks, not the first.",
            "next(reversed(self._inserted.values()), None)",
            "None",
        ),
        Mutant(
            "What speaks again is not woken.",
            "        if last is not None:\n            last.look()\n",
            "",
        ),
        Mutant(
            "A source that was inserted is not ended with the session.",
            "        components += [*self._removed, *self._inserted]\n",
            "",
        ),
        Mutant(
            "A source that hangs is not told at the end if it was removed before.",
            "            self._removed = [each for each in (*self._removed, sender) if not each.is_closed]\n",
            "",
        ),
        Mutant(
            "The microphone itself is taken for a question.",
            "lease_key_of(source) == lease_key_of(self.choice)",
            "False",
        ),
        Mutant(
            "What is sent in the microphone's place is in no track.",
            "        if self._in_place is not place:\n            return\n",
            "        if place is not None:\n            return\n",
        ),
        Mutant(
            "A muted speaker is heard.",
            "settings.volume if settings.speaker else 0.0",
            "settings.volume",
            tests=_DEVICES,
        ),
        Mutant(
            "A screen is off with the camera.",
            'return self.kind == "screen" or self._media.settings.cam',
            "return self._media.settings.cam",
            within="CameraSlot._is_on",
            tests=("tests/behaviour/media/test_client_video.py",),
        ),
    ),
)
