"""Mutants of the event bus."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/session/event_bus.py",
    (
        "tests/session/test_event_publisher.py",
        "tests/session/test_event_bus.py",
        "tests/session/test_handlers.py",
        "tests/session/test_overflow.py",
        "tests/session/test_manual.py",
        "tests/session/test_event_stream.py",
        "tests/session/test_event_message.py",
        "tests/client/test_events.py",
        "tests/client/test_turns.py",
        "tests/client/test_helpers.py",
        "tests/client/test_connect.py",
        "tests/client/test_several_ways.py",
        "tests/session/test_session.py",
        "tests/session/test_disconnect.py",
        "tests/client/test_attempts.py",
        "tests/media/test_levels.py",
    ),
    (
        Mutant(
            "A handler for the next event is called for each.",
            "elif not handler.once or self._discard(handler, type_):",
            "else:",
        ),
        Mutant(
            "A handler that fails keeps the later ones from the event.",
            "                    taken = self._failed(function_of(handler), error, event) and taken\n"
            "            signal",
            "                    taken = self._failed(function_of(handler), error, event) and taken\n"
            "                    break\n            signal",
        ),
        Mutant(
            "A receiver that fails is not reported.",
            "                taken = self._failed(receiver, error, event) and taken\n",
            "                pass\n",
        ),
        Mutant(
            "A fault in a handler of handler_error is reported to it.",
            "        if event.type is RTVIEvent.HANDLER_ERROR:\n            return True\n",
            "",
        ),
        Mutant(
            "Ctrl-C in a handler that the application runs is swallowed.",
            "        if self.queue.manual and not isinstance(error, Exception):\n            raise error\n",
            "",
        ),
        Mutant(
            "Streams get the event after the handlers.",
            "if self.streams.open:\n                event =",
            "if 0:\n                event =",
        ),
        Mutant(
            "A stream that is full is not noticed.",
            "taken = self.streams.push(event, size)",
            "self.streams.push(event, size)",
        ),
        Mutant(
            "A handler of a helper is removed with the application's.",
            "if not of_helper and (function is None or function_of(handler) == function):",
            "if function is None or function_of(handler) == function:",
        ),
        Mutant(
            "Without a function, no handler is removed.",
            "if not of_helper and (function is None or function_of(handler) == function):",
            "if not of_helper and function_of(handler) == function:",
        ),
        Mutant("An observer cannot be stopped.", "self._observers[type_].remove(function)", "pass"),
        Mutant(
            "A stream of all events asks for costly data.",
            "any(type_ in stream.types for",
            "any(True or type_ in stream.types for",
            tests=("tests/client/test_devices.py::test_hot_plug",),
        ),
        Mutant(
            "A receiver of a signal is no listener.",
            "return bool(signal.receivers) and signal.has_receivers_for(self._client())\n\n    def has_explicit",
            "return False\n\n    def has_explicit",
        ),
        Mutant(
            "process_events() may run inside a handler.",
            "if self.queue.is_current:\n            raise Would",
            "if 0:\n            raise Would",
        ),
        Mutant(
            "process_events() forgets what it has counted.",
            "self._tally.count, over = 0,",
            "self._tally.count, over = 1,",
        ),
        Mutant("The end of a session does not end process_events().", " or self.streams.last_over is not over:", ":"),
        Mutant(
            "A state is published after the last event.",
            "if self._over or (self._ending and",
            "if (self._ending and",
        ),
        Mutant(
            "A step of an attempt is published while it ends.", "(self._ending and state not in _LAST_STATES)", "False"
        ),
        Mutant(
            "A publisher changes the state of the next session.",
            "current.owner is not self or not can_transition",
            "not can_transition",
        ),
        Mutant("A state follows any other.", " or not can_transition(current.value, state):", ":"),
        Mutant(
            "That a session was ready is forgotten.",
            "self.was_ready = self.was_ready or state is",
            "self.was_ready = state is",
        ),
        Mutant(
            "A session that is ending is published as connected.",
            "self.was_opened = not self._ending\n",
            "self.was_opened = True\n",
        ),
        Mutant("Each measured value is an event.", "            measured.queued = True\n", ""),
        Mutant(
            "A measured value is delivered after the one that replaced it.",
            "maxlen=1)",
            "maxlen=2)",
            reason="only a delivery between two steps of another thread shows it",
        ),
        Mutant(
            "After a delivery no measured value is published.",
            "        measured.queued = False  # first",
            "        pass  # first",
        ),
        Mutant(
            "A message that breaks the protocol is lost.",
            "            if not bus.has_listener(event):\n                return None\n        return",
            "            return None\n        return",
        ),
        Mutant(
            "Faults of a bot fill the log.",
            "if self._warnings <= _MAX_WARNINGS else logging.DEBUG",
            "if True else logging.DEBUG",
        ),
        Mutant(
            "A failed attempt ends as an error though the application has ended it.",
            "failed = is_failed_attempt and not (info.by_application or info.reconnecting)",
            "failed = is_failed_attempt",
        ),
        Mutant(
            "Messages that could not be sent are not named.",
            "info = attrs.evolve(info, error=unsent) if unsent is not None else info",
            "pass",
        ),
        Mutant(
            "Events follow the last one.",
            "            self._over = True\n            return True",
            "            return True",
        ),
        Mutant("A failed attempt counts as a session that is over.", "None if is_failed_attempt else info)", "info)"),
        Mutant(
            "disconnected is published for an attempt.",
            "if self.was_opened and not to_nobody and bus.has_listener(RTVIEvent.DISCONNECTED)",
            "if bus.has_listener(RTVIEvent.DISCONNECTED)",
        ),
        Mutant(
            "Streams outlive their session.",
            "                    bus.streams.end_session(session, info)\n",
            "                    pass\n",
        ),
        Mutant(
            "A helper gets messages of other types.",
            "(message := message_of(cause)).type in self.messages:",
            "(message := message_of(cause)):",
        ),
        Mutant("What was dropped is delivered.", "if bus is None or self._silenced:", "if bus is None:"),
        Mutant(
            "An overflow by a stream ends nothing.",
            "        if not bus.deliver(type_, data, received_at, cause, size):\n            self._on_overflow()",
            "        bus.deliver(type_, data, received_at, cause, size)",
        ),
        Mutant(
            "An overflow of the queue ends nothing.",
            "        except QueueOverflow:\n            self._on_overflow()\n\n    def perform",
            "        except QueueOverflow:\n            pass\n\n    def perform",
        ),
    ),
)
