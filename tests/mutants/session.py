"""Mutants of a session: of its end."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/session/session.py",
    ("tests/session/test_session_end.py", "tests/session/test_disconnect.py"),
    (
        Mutant(
            "The last of several causes counts.",
            "            is_first = self._info is None\n            if is_first:\n",
            "            is_first = self._info is None\n            if True:\n",
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
            "        if not session._enter(Phase.CLOSING):\n            return\n",
            "        session._enter(Phase.CLOSING)\n",
        ),
        Mutant(
            "Devices record while the transport closes.",
            "                session.media.pause()\n",
            "                pass\n",
        ),
        Mutant(
            "Devices stop before the transport closes.",
            "                session.media.pause()\n",
            "                session.media.pause()\n                session.media.stop(0.0, 0.0)\n",
        ),
        Mutant(
            "`disconnected` is queued before the transport is closed.",
            "        session = self._session\n        if session._closes_transport:\n",
            "        session = self._session\n        self._publisher.finish(0, session.close_info, None)\n"
            "        if session._closes_transport:\n",
        ),
        Mutant(
            "The next session may start before the transport is free.",
            "        session.transport.state = publisher.state\n        _sessions",
            "        session._enter(Phase.CLOSED)\n        session.transport.state = publisher.state\n"
            "        _sessions",
        ),
        Mutant(
            "connect() waits though its session has ended.",
            "self.bot is not None or self.phase >= Phase.CLOSED or or_when()",
            "self.bot is not None or or_when()",
        ),
        Mutant(
            "The end counts as over before the last event was delivered.",
            "        self._await_delivery(deadline)\n",
            "",
        ),
        Mutant(
            "The runtime's threads stay.",
            "        session._release_runtime()\n",
            "",
            within="End.release",
        ),
        Mutant(
            "The end is never complete.",
            "        session._enter(Phase.DRAINED)\n",
            "",
        ),
        Mutant(
            "A dismissed bot is replaced.",
            "return self.is_ending and not (self.close_info.by_application or self.nothing_follows)",
            "return self.is_ending and not self.close_info.by_application",
        ),
        Mutant(
            "A session that the application ended is replaced.",
            "return self.is_ending and not (self.close_info.by_application or self.nothing_follows)",
            "return self.is_ending and not self.nothing_follows",
        ),
        Mutant(
            "`disconnected` does not say that the session is replaced.",
            "            info = attrs.evolve(info, reconnecting=True)\n",
            "            pass\n",
        ),
        Mutant(
            "Messages that could not be sent are not reported.",
            "return unsent[0] if unsent else None",
            "return None",
        ),
        Mutant(
            "A transport that hangs is not reported.",
            "        elif hanging := _run_apart(disconnect, deadline):\n",
            "        elif _run_apart(disconnect, deadline) and False:\n",
        ),
        Mutant(
            "An exception of a transport ends the close thread.",
            "            except BaseException:\n                logger.exception",
            "            except KeyError:\n                logger.exception",
        ),
        Mutant(
            "An attempt that is abandoned is not woken.",
            "        if not was_ready:\n            # With",
            "        if False:\n            # With",
        ),
        Mutant(
            "A handler that disconnects waits for itself.",
            "return self._on_own_thread() or self.publisher.queue.is_current or self.functions.is_current",
            "return self._on_own_thread()",
        ),
        Mutant(
            "Devices that the next attempt needs are closed.",
            "        if not self._session._closes_transport or self._leaves_devices:\n            return\n",
            "        if not self._session._closes_transport:\n            return\n",
        ),
        Mutant(
            "A handler that hangs gets events of the session later.",
            "        publisher.silence()\n",
            "",
        ),
        Mutant(
            "At exit a slow sink has the time of the others.",
            "sinks = 0.0 if self._at_exit else EndLimits.TEARDOWN",
            "sinks = EndLimits.TEARDOWN",
        ),
        Mutant(
            "A phase moves back.",
            "            if self.phase >= phase:\n                return False\n",
            "",
        ),
        Mutant(
            "A session is replaced at exit.",
            "            session.nothing_follows = True\n",
            "            pass\n",
        ),
        Mutant(
            "What follows starts while the session still has threads.",
            "        session._release_runtime()\n        unregister",
            "        if session._owner is not None:\n            session._owner.drained(session)\n"
            "        session._release_runtime()\n        unregister",
        ),
        Mutant(
            "A failed attempt is replaced as a lost session.",
            "if owner is not None and self._publisher.was_ready and session.follows:",
            "if owner is not None and session.follows:",
        ),
        Mutant(
            "Whether a failed attempt is followed is decided too late for its devices.",
            "        if not was_ready:\n            self._decide()\n",
            "",
        ),
        Mutant(
            "The state is not disconnecting meanwhile.",
            "            self._session.move(TransportState.DISCONNECTING)\n",
            "            pass\n",
        ),
    ),
)
