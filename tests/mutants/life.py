"""Mutants of a client's life: who holds the client, and the consequences."""

from tools.mutants import Module, Mutant

LIFE = "tests/client/test_life.py"
ATTEMPTS = "tests/client/test_attempts.py"
RECONNECT = "tests/client/test_reconnect.py"
START = "tests/client/test_start_bot.py"

MODULE = Module(
    "rtvi_sync/client/life.py",
    (LIFE, ATTEMPTS, START, RECONNECT),
    (
        Mutant(
            "Two calls connect at once.",
            "            if _state_of(operation) not in FOLLOWING[self.state]:\n",
            "            if False:\n",
        ),
        Mutant(
            "An abandoned call gets the client.",
            "            operation.check_wanted()\n            if self._closed:\n",
            "            if self._closed:\n",
            tests=(f"{LIFE}::test_an_abandoned_call_gets_no_client",),
        ),
        Mutant(
            "A closed client connects.",
            "            self.check_usable()\n            self.check_no_session()\n            holder",
            "            self.check_no_session()\n            holder",
            tests=(f"{ATTEMPTS}::test_no_session_outlives_close", f"{LIFE}::test_a_closed_client_is_not_held"),
        ),
        Mutant(
            "A call connects beside a session.",
            "            self.check_no_session()\n            holder = self._holder\n",
            "            holder = self._holder\n",
        ),
        Mutant(
            "A reconnect that is displaced continues.",
            "            if holder is not None:\n                holder.stop()\n",
            "",
        ),
        Mutant(
            "connect() does not wait for a session that ends.",
            "            self.last_session.await_end(deadline)\n",
            "            pass\n",
            tests=("tests/session/test_disconnect.py::TestDisconnect::test_reconnect_right_after_a_remote_end",),
        ),
        Mutant(
            "An old session decides what follows a new one.",
            "            if self._holder is not operation:\n                return False\n",
            "",
            within="Life.settle",
            tests=(f"{LIFE}::test_only_the_holder_is_followed",),
        ),
        Mutant(
            "A session that the application has ended is replaced.",
            "wanted and not (session.nothing_follows or operation.abandoned or self._closed)",
            "wanted and not (operation.abandoned or self._closed)",
        ),
        Mutant(
            "The session of an abandoned call is followed.",
            "wanted and not (session.nothing_follows or operation.abandoned or self._closed)",
            "wanted and not (session.nothing_follows or self._closed)",
        ),
        Mutant(
            "A session follows close().",
            "wanted and not (session.nothing_follows or operation.abandoned or self._closed)",
            "wanted and not (session.nothing_follows or operation.abandoned)",
            tests=(f"{LIFE}::test_nothing_follows_close",),
        ),
        Mutant(
            "disconnect() does not find what follows.",
            "                self.operations.append(successor)\n",
            "                pass\n",
        ),
        Mutant(
            "The client stays held after its session.",
            "            self._let_hold(successor)\n",
            "            pass\n",
        ),
        Mutant(
            "A call that failed keeps the client.",
            "            if self._holder is operation:\n                self._let_hold(None)\n",
            "            pass\n",
            within="Life.release",
        ),
        Mutant(
            "A call that failed takes the client from another one.",
            "            if self._holder is operation:\n                self._let_hold(None)\n",
            "            self._let_hold(None)\n",
            within="Life.release",
        ),
        Mutant(
            "Nothing replaces a lost session.",
            "if operation.lost is session and operation.progress is Progress.NEW:",
            "if False:",
        ),
        Mutant(
            "What replaces a session is started twice.",
            "if operation.lost is session and operation.progress is Progress.NEW:",
            "if operation.lost is session:",
        ),
        Mutant(
            "The finalizer does not know the operation.",
            "self.watch.operation = weakref.ref(operation) if operation is not None else None",
            "pass",
        ),
        Mutant(
            "Why a session was not replaced is told after another connect().",
            "        self.failed = None\n        return session\n",
            "        return session\n",
        ),
        Mutant(
            "A stopped reconnect still announces attempts.",
            "            if self._holder is not reconnect or reconnect.abandoned:\n                return False\n",
            "",
            within="Life.announce",
        ),
        Mutant(
            "A stopped reconnect still reports.",
            "            if self._holder is not reconnect or reconnect.abandoned:\n                return False\n",
            "",
            within="Life.report_failure",
        ),
        Mutant(
            "Streams wait though no session follows.",
            '            self.end_waiting_streams(CloseInfo(initiator="network", error=data.error), last)\n',
            "            self.publish(*last)\n",
            within="Life.report_failure",
        ),
        Mutant(
            "Streams end before the event that tells why.",
            "                end = self._bus.streams.give_up(info)\n",
            "                end = self._bus.streams.give_up(info)\n                end()\n",
        ),
        Mutant(
            "disconnect() leaves a call that connects.",
            "            operation.abandon()\n            if isinstance(operation, StartBot):\n",
            "            if isinstance(operation, StartBot):\n",
            tests=("tests/client/test_connect_steps.py",),
        ),
        Mutant(
            "disconnect() does not wait for start_bot().",
            "operation.wait_over(Deadline(EndLimits.TEARDOWN))",
            "pass",
        ),
        Mutant(
            "disconnect() lets the session be replaced.",
            "            session.nothing_follows = True\n            holder = self._holder\n",
            "            holder = self._holder\n",
        ),
        Mutant(
            "disconnect() does not stop what was to follow.",
            "            if holder is None or holder.lost is not session:\n                return []\n",
            "            if True:\n                return []\n",
        ),
        Mutant(
            "disconnect() leaves streams that wait.",
            "        if reconnects or self._bus.streams.awaits_replacement:\n",
            "        if False:\n",
        ),
        Mutant(
            "disconnect() leaves the reconnect thread.",
            "                operation.join(Deadline(EndLimits.STOP))\n",
            "                pass\n",
        ),
        Mutant(
            "disconnect() leaves the state authenticated.",
            "        self.forget_bot()\n        self.media.let_go()\n",
            "        self.media.let_go()\n",
        ),
        Mutant(
            "A forked child waits for its parent's reconnect.",
            "        self._let_hold(None)\n        self.operations.clear()\n",
            "        self.operations.clear()\n",
        ),
        Mutant(
            "close() looks before it refuses further sessions.",
            "            life._closed = True  # before the sessions are read: none may start after that\n",
            "            pass\n",
        ),
        Mutant(
            "A client that waits has no session.",
            "return self.state not in (State.IDLE, State.STARTING, State.CLOSED)",
            "return self.state not in (State.IDLE, State.STARTING, State.CLOSED, State.WAITING)",
        ),
    ),
)
