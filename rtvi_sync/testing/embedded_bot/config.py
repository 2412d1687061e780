"""Config of the embedded bot, as bots of RTVI 0.3 and early 1.x have one."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from rtvi_sync.testing.embedded_bot.action_schema import type_of
from rtvi_sync.testing.embedded_bot.messenger import MessageHandler, Messenger, ReplyControl
from rtvi_sync.testing.embedded_bot.script import Message
from rtvi_sync.testing.embedded_bot.validation import entries, field, optional, values_by_name

Config: TypeAlias = list[dict[str, Any]]
OptionTypes: TypeAlias = Mapping[str, Mapping[str, str]]
OnConfig: TypeAlias = Callable[[str, str, Any], object]


def read_config(config: Sequence[Mapping[str, Any]]) -> Config:
    """Check a config and return a copy of it.

    Raises:
        InvalidMessageError: `config` is not a list of ``{"service", "options": [{"name", "value"}]}``.
    """
    return [
        {
            "service": field(service, "service", str),
            "options": [
                {"name": name, "value": copy.deepcopy(value)}
                for name, value in values_by_name(service, "options").items()
            ],
        }
        for service in entries({"config": config}, "config")
    ]


class UnknownOptionError(KeyError):
    """The bot has no such service or option."""


class LiveConfig:
    """The config of one session. Any thread may read it; the thread of the session changes it.

    Args:
        config: the bot's initial config.
        types: the options that the bot knows, by service, with their types; the type of an option that is missing here
            is that of its value in `config`.
        on_config: called with service, option and value before an option is set.
    """

    def __init__(self, config: Config, types: OptionTypes, on_config: OnConfig | None) -> None:
        # Guards _config. Held for a moment by the thread of the session and by the test's threads.
        self._lock = threading.Lock()
        self._config = copy.deepcopy(config)
        self._on_config = on_config
        self._types: dict[str, dict[str, str]] = {}
        for service in config:
            self._types[service["service"]] = {
                option["name"]: type_of(option["value"]) for option in service["options"]
            }
        for name, options in types.items():
            self._types[name] = self._types.get(name, {}) | dict(options)

    @property
    def services(self) -> Config:
        """Return a copy of the config."""
        with self._lock:
            return copy.deepcopy(self._config)

    def describe(self) -> list[dict[str, Any]]:
        """Return every option that the bot knows with its type, by service. On the wire a service's key is "name"."""
        return [
            {"name": service, "options": [{"name": name, "type": kind} for name, kind in options.items()]}
            for service, options in self._types.items()
        ]

    def update(self, changes: Config) -> None:
        """Set options one after the other. Options of a service that is known but not in the config are not kept.

        Raises:
            UnknownOptionError: a service or an option is not known. The options before it are set.
            Exception: raised by `on_config`. The options before this one are set, this one is not.
        """
        for change in changes:
            service = change["service"]
            if service not in self._types:
                raise UnknownOptionError(service)
            for option in change["options"]:
                name, value = option["name"], option["value"]
                if name not in self._types[service]:
                    raise UnknownOptionError(name)
                if self._on_config is not None:
                    self._on_config(service, name, value)
                self._set(service, name, value)

    def _set(self, service: str, name: str, value: Any) -> None:
        with self._lock:
            for entry in self._config:
                if entry["service"] == service:
                    for option in entry["options"]:
                        if option["name"] == name:
                            option["value"] = value
                            return
                    entry["options"].append({"name": name, "value": value})


class ConfigHandlers:
    """Handlers of the messages about the config.

    Args:
        messenger: to the client.
        config: of the session.
        reply_control: an update may interrupt the bot; ``llm.run_on_config`` runs the language model.
    """

    def __init__(self, messenger: Messenger, config: LiveConfig, reply_control: ReplyControl) -> None:
        self._messenger = messenger
        self._config = config
        self._reply_control = reply_control

    @property
    def handlers(self) -> Mapping[str, MessageHandler]:
        """Return the handlers by type of message."""
        return {"get-config": self._get, "describe-config": self._describe, "update-config": self._update}

    def _get(self, received: Message) -> None:
        self._messenger.emit("config", {"config": self._config.services}, received["id"])

    def _describe(self, received: Message) -> None:
        self._messenger.emit("config-available", {"config": self._config.describe()}, received["id"])

    def _update(self, received: Message) -> None:
        data = received.get("data") or {}
        changes = read_config(field(data, "config", list))
        if optional(data, "interrupt", bool):
            self._reply_control.stop_speaking()
        try:
            self._config.update(changes)
        except UnknownOptionError as error:
            self._messenger.send_error_response(received, f"Exception processing message: {error}")
            return
        self._get(received)
        options = [(change["service"], option) for change in changes for option in change["options"]]
        if ("llm", {"name": "run_on_config", "value": True}) in options:
            self._reply_control.respond()
