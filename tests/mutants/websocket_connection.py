"""Mutants of an open WebSocket: how the wire is read, and how the connection ends."""

from tools.mutants import Module, Mutant

CONNECTION = "tests/transports/test_websocket_connection.py"
KEEP_ALIVE = "tests/transports/test_websocket_keep_alive.py"
CLOSING = "tests/transports/test_websocket_close.py"


def _of(file: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{file}::test_{name}" for name in names)


MODULE = Module(
    "rtvi_sync/transports/websocket_connection.py",
    (CONNECTION, KEEP_ALIVE, CLOSING),
    (
        # -- reading --------------------------------------------------------------------------------------------------
        Mutant(
            "What the selector tells of is read although a turn is scheduled.",
            "if not self._resume_pending and self._info is None:",
            "if self._info is None:",
            tests=_of(
                CONNECTION,
                "reading_on_does_not_multiply",
                "large_messages_both_ways",
                "a_turn_ends_within_what_was_read",
            ),
        ),
        Mutant(
            "A connection that has ended is read.",
            "if not self._resume_pending and self._info is None:",
            "if not self._resume_pending:",
            reason="its socket is closed: the read fails, and the failure is no second end",
        ),
        Mutant(
            "After its first turn a busy connection is not read any more.",
            "        self._resume_pending = False\n        slice_end",
            "        slice_end",
            tests=_of(CONNECTION, "a_busy_connection_gives_the_others_their_turn"),
        ),
        Mutant(
            "What came with the handshake is only delivered when more comes.",
            "        self._resume()  # without waiting",
            "        # without waiting",
            tests=_of(CONNECTION, "what_came_with_the_handshake", "what_shares_a_record_with_the_handshake"),
        ),
        Mutant(
            "What came with the handshake does not count.",
            "        self._bytes_received += len(first)\n",
            "",
            tests=_of(CONNECTION, "all_received_bytes_are_counted"),
        ),
        Mutant(
            "What is read does not count.",
            "            self._bytes_received += len(data)\n",
            "",
            tests=_of(CONNECTION, "all_received_bytes_are_counted"),
        ),
        Mutant(
            "After much only one read follows each call of the selector.",
            "            more = len(data) >= _FULL_READ_BYTES\n",
            "            more = False\n",
            tests=_of(CONNECTION, "reads_in_vain"),
        ),
        Mutant(
            "After a little the socket is read in vain.",
            "            more = len(data) >= _FULL_READ_BYTES\n",
            "            more = True\n",
            tests=_of(CONNECTION, "reads_in_vain"),
        ),
        Mutant(
            "A flood is read to its end.",
            "            if more and now >= slice_end:\n",
            "            if False:\n",
            reason="delivery ends the turn as well: only frames that no message completes take longer",
        ),
        Mutant(
            "What is not delivered yet is lost when more is read.",
            "            more = self._deliver(slice_end) and more\n",
            "            self._deliver(slice_end)\n",
            tests=_of(CONNECTION, "a_callback_that_takes_its_time_loses_nothing"),
        ),
        Mutant(
            "Thousands of small frames are delivered in one turn.",
            "                if monotonic() >= slice_end:\n",
            "                if False:\n",
            tests=_of(CONNECTION, "a_turn_ends_within_what_was_read"),
        ),
        Mutant(
            "It is forgotten that a message came.",
            "                    self.has_received = True\n",
            "",
            tests=("tests/transports/test_websocket_base.py",),
        ),
        Mutant(
            "A ping is not answered.",
            "                self.send(PONG, payload)\n",
            "                pass\n",
            tests=_of(CONNECTION, "pings_are_answered"),
        ),
        Mutant(
            "An unrequested pong is measured.",
            "            if payload == self._ping:\n",
            "            if len(payload) == 8:\n",
            tests=_of(KEEP_ALIVE, "a_stray_pong_is_nothing"),
        ),
        Mutant(
            "A pong that is repeated is measured again.",
            "                self._ping = None  # because",
            "                pass  # because",
            tests=_of(KEEP_ALIVE, "an_answer_that_is_repeated_is_nothing"),
        ),
        # -- writing --------------------------------------------------------------------------------------------------
        Mutant(
            "A connection that is not served yet is watched for room.",
            "if blocked != self._watching_writes and self._received_at:",
            "if blocked != self._watching_writes:",
            tests=_of(CONNECTION, "sending_before_the_start", "much_is_sent_before_the_start"),
        ),
        Mutant(
            "After a blockage the thread still watches for room.",
            "if blocked != self._watching_writes and self._received_at:",
            "if blocked and self._received_at:",
            tests=_of(CONNECTION, "after_a_blockage_callers_write_themselves_again"),
        ),
        Mutant(
            "A blockage is not watched for its end.",
            "        if self._writer.blocked and self._info is None:\n            self._stall_timer =",
            "        if False:\n            self._stall_timer =",
            tests=_of(CONNECTION, "a_bot_that_reads_nothing_ends_the_session"),
        ),
        Mutant(
            "A peer that takes a little is not watched further.",
            "        else:\n            self._stall_timer = self._io.call_later(self._stall_timeout - waited,",
            "        elif False:\n            self._stall_timer = self._io.call_later(self._stall_timeout - waited,",
            tests=_of(CONNECTION, "a_bot_that_reads_a_little_and_then_nothing_ends_the_session"),
        ),
        Mutant(
            "A late timer does not look at the socket.",
            "        now = self._catch_up()\n        self._stall_timer = None\n",
            "        now = monotonic()\n        self._stall_timer = None\n",
            tests=_of(KEEP_ALIVE, "a_peer_that_read_meanwhile_has_not_stalled"),
        ),
        # -- silence --------------------------------------------------------------------------------------------------
        Mutant(
            "A pong that lies in the socket does not count.",
            "        now = self._catch_up()\n        if self._info is not None or self._ping_interval",
            "        now = monotonic()\n        if self._info is not None or self._ping_interval",
            tests=_of(KEEP_ALIVE, "a_pong_that_lies_in_the_socket_counts"),
        ),
        Mutant(
            "A polite close is pinged.",
            " or self._ping_interval is None or self._writer.closing is not None:",
            " or self._ping_interval is None:",
            tests=_of(KEEP_ALIVE, "a_polite_close_is_not_a_death"),
        ),
        Mutant(
            "A peer that does not read is taken for dead.",
            "        if unanswered and self._writer.blocked:\n",
            "        if False:\n",
            tests=_of(KEEP_ALIVE, "while_bytes_wait_the_peer_is_not_dead", "no_pings_pile_up_behind_a_blocked_line"),
        ),
        Mutant(
            "A dead peer is not found.",
            "        elif unanswered and now - self._pinged_at >= self._ping_timeout:\n",
            "        elif False:\n",
            tests=_of(KEEP_ALIVE, "a_dead_peer_is_found"),
        ),
        # -- the end --------------------------------------------------------------------------------------------------
        Mutant(
            "What the peer told before a write failed is lost.",
            "                self._resume()  # the server may have told more",
            "                pass  # the server may have told more",
            tests=_of(CONNECTION, "what_came_before_a_write_that_fails", "what_came_before_a_blocked_write_fails"),
        ),
        Mutant(
            "A reset amid a close is a broken network.",
            "            except (OSError, ValueError) as error:\n",
            "            except ValueError as error:\n",
            tests=_of(CONNECTION, "a_bot_that_hangs_up_instead_of_answering"),
        ),
        Mutant(
            "An end of the line after our close frame is a broken network.",
            "        return self._writer.closing or CloseInfo(\n",
            "        return CloseInfo(\n",
            tests=_of(CONNECTION, "a_bot_that_hangs_up_instead_of_answering"),
        ),
        Mutant(
            "A connection that cannot be served stays open.",
            "            self._finish(CloseInfo(error=TransportStartError(",
            "            str(CloseInfo(error=TransportStartError(",
            tests=_of(CONNECTION, "a_connection_that_cannot_be_served_ends"),
        ),
        Mutant(
            "A connection that was closed before is served.",
            "        if self._info is not None:\n            return\n        try:\n            self._io.register",
            "        try:\n            self._io.register",
            tests=_of(CONNECTION, "closing_before_the_start"),
        ),
        Mutant(
            "What follows the close frame is delivered.",
            "                if self._info is not None:\n                    return False\n",
            "",
            within="WebSocketConnection._deliver",
            tests=_of(CONNECTION, "data_after_the_close_frame_is_ignored"),
        ),
        Mutant(
            "The peer is not told of its offence.",
            "            self._send_close(error.code, info)\n",
            "",
            tests=_of(CONNECTION, "a_breach_of_the_protocol"),
        ),
        Mutant(
            "An offence of the peer does not end the connection.",
            "            self._send_close(error.code, info)\n            self._finish(info)\n",
            "            self._send_close(error.code, info)\n",
            tests=_of(CONNECTION, "a_breach_of_the_protocol"),
        ),
        Mutant(
            "A close frame without a code counts as 1000.",
            "if payload else 1005",
            "if payload else 1000",
            tests=_of(CONNECTION, "a_close_frame_without_code"),
        ),
        Mutant(
            "The end of a close of ours is the peer's.",
            '        initiator = "server" if self._writer.closing is None else "client"\n',
            '        initiator = "server"\n',
            tests=_of(CONNECTION, "the_client_ends_the_session"),
        ),
        Mutant(
            "A reason has several lines.",
            'one_line(payload[2:].decode("utf-8", "replace"))',
            'payload[2:].decode("utf-8", "replace")',
            tests=_of(CONNECTION, "a_reason_is_one_line"),
        ),
        Mutant(
            "The peer's close frame is not answered.",
            "        self._send_close(code if code != 1005 else 1000, info)\n",
            "",
            tests=_of(CONNECTION, "the_bot_ends_the_session"),
        ),
        Mutant(
            "The connection stays open after the peer's close frame.",
            "        self._send_close(code if code != 1005 else 1000, info)\n        self._finish(info)\n",
            "        self._send_close(code if code != 1005 else 1000, info)\n",
            tests=_of(CONNECTION, "the_bot_ends_the_session"),
        ),
        Mutant(
            "A sender is not told how the connection has ended.",
            "            info = self._info or self._writer.closing\n",
            "            info = None\n",
            tests=_of(CONNECTION, "sending_tells_how_the_connection_has_ended"),
        ),
        Mutant(
            "The close handshake is not awaited.",
            "            pause = min(ends_at, since + idle_timeout) - now\n",
            "            pause = 0.0\n",
            tests=_of(CONNECTION, "the_client_ends_the_session", "the_client_hears_the_bot_until_it_answers"),
        ),
        Mutant(
            "A peer that takes bytes is not waited for.",
            "            since = since if left == before else now\n",
            "            since = since or now\n",
            tests=(CLOSING,),
        ),
        Mutant(
            "The limit of a close does not count while bytes leave.",
            "(now >= ends_at or self._writer.bytes_left == left)",
            "self._writer.bytes_left == left",
            tests=(CLOSING,),
            reason="between the looks of two threads, microseconds apart, no byte leaves",
        ),
        Mutant(
            "A close whose bytes leave ends before its limit.",
            "(now >= ends_at or self._writer.bytes_left == left)",
            "True",
            tests=(CLOSING,),
            reason="the same",
        ),
        Mutant(
            "An I/O thread that does not close the socket is no fault.",
            "                if pause <= 0:\n                    return False\n",
            "                if pause <= 0:\n                    return True\n",
            tests=_of(CLOSING, "an_io_thread_that_comes_late"),
        ),
        Mutant(
            "The end is told twice.",
            "        if self._info is not None:\n            return\n        self._info = info\n",
            "        self._info = info\n",
            tests=_of(CONNECTION, "what_came_before_a_blocked_write_fails", "closing_again", "both_close_at_once"),
        ),
        Mutant(
            "Messages that were not sent are forgotten.",
            "        self.unsent = self._writer.end()\n",
            "        self._writer.end()\n",
            tests=(CLOSING,),
        ),
        Mutant(
            "The timers of a connection outlive it.",
            "                timer.cancel()\n",
            "                pass\n",
            within="WebSocketConnection._finish",
            tests=_of(CONNECTION, "no_timer_outlives_a_connection"),
        ),
        Mutant(
            "close() does not learn of the end.",
            "        self._closed.set()\n        self._on_closed(info)\n",
            "        self._on_closed(info)\n",
            tests=_of(CONNECTION, "the_client_ends_the_session"),
        ),
        Mutant(
            "An error in a callback is ignored.",
            '        self._finish(CloseInfo(initiator="network", error=error))\n',
            "        pass\n",
            tests=_of(CONNECTION, "an_error_in_a_callback_ends_the_connection"),
        ),
        Mutant(
            "A forked child waits for its parent's connection.",
            "        self._closed.set()\n        with contextlib.suppress",
            "        with contextlib.suppress",
            within="WebSocketConnection.after_fork_in_child",
            tests=_of(CONNECTION, "a_fork_closes_only_the_copy_of_the_child"),
        ),
    ),
)
