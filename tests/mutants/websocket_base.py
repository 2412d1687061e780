"""Mutants of the common parts of transports over one WebSocket: the start and end of their session."""

from tools.mutants import Module, Mutant

BASE = "tests/transports/test_websocket_base.py"
CLOSING = "tests/transports/test_websocket_close.py"

MODULE = Module(
    "rtvi_sync/transports/websocket_base.py",
    (BASE, CLOSING, "tests/transports/test_websocket.py", "tests/transports/test_eval.py"),
    (
        Mutant(
            "Each frame of the other kind is warned of.",
            "        if not self.ignored:\n",
            "        if True:\n",
        ),
        Mutant(
            "Of several frames of the other kind one is counted.",
            "        self.ignored += len(payloads)\n",
            "        self.ignored += 1\n",
        ),
        Mutant(
            "A server's faults fill the log.",
            "level = logging.WARNING if self.undecodable <= _MAX_WARNINGS else logging.DEBUG",
            "level = logging.WARNING",
        ),
        Mutant(
            "Frames of the other kind explain nothing.",
            "        if self.ignored:\n            return f",
            "        if False:\n            return f",
        ),
        Mutant(
            "A bot that was heard counts as one that hung up.",
            "self._hung_up = not connection.has_received",
            "self._hung_up = True",
        ),
        Mutant(
            "A server that hung up explains nothing.",
            "self._hung_up = not connection.has_received",
            "self._hung_up = False",
        ),
        Mutant(
            "The end of a connection is told after disconnect().",
            "            if self._connection is connection:  # otherwise disconnect() was called\n",
            "            if True:\n",
        ),
        Mutant(
            "An abandoned attempt keeps its connection.",
            "            abandoned = abort.aborted\n",
            "            abandoned = False\n",
        ),
        Mutant(
            "The socket of an abandoned attempt stays open.",
            "        if abandoned:\n            sock.close()\n",
            "        if abandoned:\n",
        ),
        Mutant(
            "The bot is read before the session is opened.",
            "        detach()\n",
            "        detach()\n        self.send_ready_message()\n",
        ),
        Mutant(
            "The bot is not read if client-ready cannot be sent.",
            "        try:\n            self._send_first(self.options.client_ready)\n        finally:\n"
            "            if connection",
            "        self._send_first(self.options.client_ready)\n        if True:\n            if connection",
            reason="_send_first() raises nothing as long as there is a connection",
        ),
        Mutant(
            "A server that has hung up fails the ready message.",
            "            if self._connection is None:  # disconnect() was called\n                raise\n",
            "            raise\n",
        ),
        Mutant(
            "A session whose connection was never read is closed politely.",
            "            abandoned = leftover is not None or (abort is not None and abort.aborted)\n",
            "            abandoned = abort is not None and abort.aborted\n",
        ),
        Mutant(
            "An attempt that was aborted is closed politely.",
            "            abandoned = leftover is not None or (abort is not None and abort.aborted)\n",
            "            abandoned = leftover is not None\n",
        ),
        Mutant(
            "disconnect() waits for the peer without a limit.",
            "_POLITE_CLOSE_TIMEOUT, limit)",
            "_POLITE_CLOSE_TIMEOUT)",
        ),
        Mutant(
            "Later calls do not know how the connection has ended.",
            "            self._last_end = connection.info\n",
            "",
        ),
        Mutant(
            "The counters of the last session are lost.",
            "            self._last_stats = stats = connection.stats()\n",
            "            stats = connection.stats()\n",
        ),
        Mutant(
            "Audio is lost in silence.",
            "            if stats.audio_unsent:\n",
            "            if False:\n",
        ),
        Mutant(
            "A close that is not done in time is no fault.",
            "            if not in_time:\n",
            "            if False:\n",
        ),
        Mutant(
            "Messages are lost in silence.",
            "            if messages and not abandoned and info is not None:\n",
            "            if False:\n",
        ),
        Mutant(
            "An abandoned attempt reports lost messages.",
            "            if messages and not abandoned and info is not None:\n",
            "            if messages and info is not None:\n",
        ),
        Mutant(
            "A new session has the counters of the last one.",
            "= None, TransportStats(), None, False",
            "= None, self._last_stats, None, False",
        ),
        Mutant(
            "A new session has the end of the last one.",
            "= None, TransportStats(), None, False",
            "= None, TransportStats(), self._last_end, False",
        ),
        Mutant(
            "A forked child has its parent's connection.",
            "        self._connection = self._abort = self._leftover = None\n",
            "",
            reason="the connection is closed in the child by itself, and refuses messages, too",
        ),
    ),
)
