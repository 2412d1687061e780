"""Mutants of a session: of its end."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/session/session.py",
    ("tests/session/test_session_end.py", "tests/session/test_disconnect.py"),
    (
        Mutant(
            "The last of several causes counts.",
            "if self._info is None:",
            "if True:",
            within="Session._fail_calls",
        ),
        Mutant(
            "Waiting calls fail only when the transport is closed.",
            "        self.engine.pending.fail_all(make_error)\n",
            "",
            within="Session._fail_calls",
        ),
        Mutant(
            "A session ends twice.",
            "            if self._tearing_down:\n                return\n",
            "",
            within="Session._tear_down",
        ),
        Mutant(
            "Devices record while the transport closes.",
            "        self.media.pause()\n",
            "",
        ),
        Mutant(
            "Devices stop before the transport closes.",
            "        self.media.pause()\n",
            "        self.media.pause()\n        self.media.stop(0.0, 0.0)\n",
        ),
        Mutant(
            "`disconnected` is queued before the transport is closed.",
            "        if self._closes_transport:\n            unsent",
            "        publisher.finish(0, self._info, None)\n        if self._closes_transport:\n            unsent",
        ),
        Mutant(
            "The next session may start before the transport is free.",
            "        self.transport.state = publisher.state\n        _sessions",
            "        self.closed.set()\n        self.transport.state = publisher.state\n        _sessions",
        ),
        Mutant(
            "connect() waits though its session has ended.",
            "        self.connect_done.set()\n",
            "",
            within="Session._tear_down",
        ),
        Mutant(
            "The end counts as over before the last event was delivered.",
            "            self._await_delivery(delivered, deadline, at_exit=at_exit)\n",
            "",
        ),
        Mutant(
            "The runtime's threads stay.",
            "        self.runtime.release()\n",
            "",
            within="Session._tear_down",
        ),
        Mutant(
            "The end is never complete.",
            "        self.drained.set()\n",
            "",
        ),
        Mutant(
            "A dismissed bot is replaced.",
            "if follows is not None and not (self.close_info.by_application or self.bot_dismissed):",
            "if follows is not None and not self.close_info.by_application:",
        ),
        Mutant(
            "A session that the application ended is replaced.",
            "if follows is not None and not (self.close_info.by_application or self.bot_dismissed):",
            "if follows is not None and not self.bot_dismissed:",
        ),
        Mutant(
            "`disconnected` does not say that the session is replaced.",
            "attrs.evolve(self.close_info, reconnecting=self.is_replaced)",
            "self.close_info",
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
            "        if not publisher.was_ready:\n            # With",
            "        if False:\n            # With",
        ),
        Mutant(
            "A handler that disconnects waits for itself.",
            "if self._on_own_thread() or self.publisher.queue.is_current or self.functions.is_current:",
            "if self._on_own_thread():",
        ),
        Mutant(
            "Devices that the next attempt needs are closed.",
            "            self._keep_devices()\n",
            "            self.media.stop(0.0, 0.0)\n",
        ),
        Mutant(
            "A handler that hangs gets events of the session later.",
            "        publisher.silence()\n",
            "",
        ),
        Mutant(
            "At exit a slow sink has the time of the others.",
            "sink_share = 0.0 if at_exit else EndLimits.SINK_SHARE",
            "sink_share = EndLimits.SINK_SHARE",
        ),
        Mutant(
            "The state is not disconnecting meanwhile.",
            "            self.move(TransportState.DISCONNECTING)\n",
            "            pass\n",
        ),
    ),
)
