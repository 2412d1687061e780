"""Mutants of the end of a session."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/session/ending.py",
    ("tests/session/test_ending.py",),
    (
        Mutant(
            "The last of several causes counts.",
            "if self._info is None:",
            "if True:",
            within="SessionEnd._begin",
        ),
        Mutant(
            "Waiting calls fail only when the transport is closed.",
            "        self._parts.channel.close(self.info.as_error)\n",
            "",
            within="SessionEnd._begin",
        ),
        Mutant(
            "A session ends twice.",
            "            if self._tearing_down:\n                return\n",
            "",
            within="SessionEnd._tear_down",
        ),
        Mutant(
            "Devices record while the transport closes.",
            "        media.pause()\n",
            "",
        ),
        Mutant(
            "Devices stop before the transport closes.",
            "        media.pause()\n        unsent = self._close_transport(deadline)\n",
            "        media.pause()\n        media.stop(0.0, 0.0)\n        unsent = self._close_transport(deadline)\n",
        ),
        Mutant(
            "`disconnected` is queued before the transport is closed.",
            "        if self.closes_transport:\n            unsent",
            "        publisher.finish(self.info, None)\n        if self.closes_transport:\n            unsent",
        ),
        Mutant(
            "The next session may begin before the manager knows of the end.",
            "        self._on_closed()\n        self.closed.set()\n",
            "        self.closed.set()\n        self._on_closed()\n",
        ),
        Mutant(
            "connect() waits though its session has ended.",
            "        self.connect_done.set()\n",
            "",
        ),
        Mutant(
            "The end counts as over before the last event was delivered.",
            "            self._await_delivery(delivered, deadline)\n",
            "",
        ),
        Mutant(
            "The runtime's threads stay.",
            "        parts.runtime.release()\n",
            "",
        ),
        Mutant(
            "The end is never over.",
            "        self._on_drained()\n",
            "",
        ),
        Mutant(
            "A dismissed bot is replaced.",
            "if follows is not None and not (self.info.by_application or self.bot_dismissed):",
            "if follows is not None and not self.info.by_application:",
        ),
        Mutant(
            "A session that the application ended is replaced.",
            "if follows is not None and not (self.info.by_application or self.bot_dismissed):",
            "if follows is not None and not self.bot_dismissed:",
        ),
        Mutant(
            "`disconnected` does not say that the session is replaced.",
            "info = attrs.evolve(self.info, reconnecting=self.is_replaced)",
            "info = self.info",
        ),
        Mutant(
            "Messages that could not be sent are not reported.",
            "return unsent[0] if unsent else None",
            "return None",
        ),
        Mutant(
            "A transport that hangs is not reported.",
            "        if hanging:\n",
            "        if False:\n",
        ),
        Mutant(
            "An exception of a transport ends the close thread.",
            "            except BaseException:\n                logger.exception",
            "            except KeyError:\n                logger.exception",
        ),
        Mutant(
            "An attempt that is abandoned is not woken.",
            "        if not self._parts.publisher.was_ready:\n            # With",
            "        if False:\n            # With",
        ),
        Mutant(
            "A handler that disconnects waits for itself.",
            "if self._on_own_thread() or self._parts.publisher.in_handler or self._parts.channel.functions.is_current:",
            "if self._on_own_thread():",
        ),
        Mutant(
            "Devices that the next attempt needs are closed.",
            "            self._keep_devices()\n",
            "            media.stop(0.0, 0.0)\n",
        ),
        Mutant(
            "A handler that hangs gets events of the session later.",
            "        publisher.silence()\n",
            "",
        ),
        Mutant(
            "At exit a slow sink has the time of the others.",
            "sink_share = 0.0 if at_exit else limits.SINK_SHARE",
            "sink_share = limits.SINK_SHARE",
        ),
        Mutant(
            "The state is not disconnecting meanwhile.",
            "            publisher.move(TransportState.DISCONNECTING)\n",
            "",
        ),
    ),
)
