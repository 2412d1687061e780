"""Mutants of the protocol's state machine."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/protocol/engine.py",
    ("tests/protocol/test_engine.py", "tests/protocol/test_negotiation.py", "tests/protocol/test_config.py"),
    (
        Mutant(
            "A second bot-ready is another handshake.",
            'if type_ == "bot-ready" and self.bot_ready is None:',
            'if type_ == "bot-ready":',
        ),
        Mutant(
            "A config of the bot's version 2.0 is asked for.",
            "version < (2, 0) and self.config is None",
            "version <= (2, 0) and self.config is None",
        ),
        Mutant(
            "A refused type is sent again.",
            "self._missing.add(OUTBOUND[asked].feature)",
            "pass",
        ),
        Mutant(
            "A type that is noted as unknown is sent again.",
            "self._missing.add(OUTBOUND[type_].feature)",
            "pass",
        ),
        Mutant(
            "What is sent before bot-ready is allowed for good.",
            "                if self.bot_ready is not None:\n                    self._known.add",
            "                if True:\n                    self._known.add",
        ),
        Mutant(
            "A waiter without a matching answer waits for ever.",
            "        if waiter is not None:\n            raise ValueError",
            "        if False:\n            raise ValueError",
        ),
        Mutant(
            "A bot-ready over a limit is skipped.",
            'error.type in ("bot-ready", None)',
            'error.type in ("bot-ready",)',
        ),
        Mutant(
            "A conversation over HTTP ends by a message over a limit.",
            "if self._awaits_ready and self.bot_ready is None and error.type",
            "if self.bot_ready is None and error.type",
        ),
        Mutant(
            "A request whose answer is over a limit waits for ever.",
            "if error.type is None or error.type in REPLY_TYPES:",
            "if False:",
        ),
        Mutant(
            "An event over a limit fails all requests.",
            "if error.type is None or error.type in REPLY_TYPES:",
            "if True:",
        ),
        Mutant(
            "The event of an interruption comes before the audio is dropped.",
            "[Interrupt(), deliver]",
            "[deliver, Interrupt()]",
        ),
        Mutant(
            "The audio of a bot that does not hear the user is dropped.",
            "return [deliver] if self.user_is_muted else",
            "return [deliver] if False else",
        ),
        Mutant(
            "An error that is not fatal ends the session.",
            'message.data.get("fatal") is True',
            '"fatal" in message.data',
        ),
        Mutant(
            "The event of a fatal error is lost.",
            "return [deliver, Close(error)]",
            "return [Close(error)]",
        ),
        Mutant(
            "An answer of another type ends a request.",
            "asked is not None and OUTBOUND[asked].answer == message.type:",
            "asked is not None:",
        ),
        Mutant(
            "The event of an answer comes before the call has it.",
            "effects.insert(0, Resolve(",
            "effects.append(Resolve(",
        ),
        Mutant(
            "Each config of the bot counts as an update.",
            'if asked == "update-config":\n                    effects',
            "if True:\n                    effects",
        ),
        Mutant(
            "A warning about the client's version is a refusal.",
            "if message.id is not None and message.id == self.client_ready.id:",
            "if False:",
        ),
        Mutant(
            "The refusal of the client's own request is an event.",
            "return [reject] if message.id == self.config_request.id else [reject, deliver]",
            "return [reject, deliver]",
        ),
        Mutant(
            "A refused config is a refused request.",
            '        if asked == "update-config":\n            return ConfigUpdateError',
            "        if False:\n            return ConfigUpdateError",
        ),
        Mutant(
            "A custom transport may deliver data of any depth.",
            "if envelope.is_too_deep(message.data):",
            "if False:",
        ),
        Mutant(
            "The bot's error text may hold control characters.",
            "    return one_line(text)\n",
            "    return text\n",
            within="error_text",
        ),
    ),
)
