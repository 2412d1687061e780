"""The part of the client that reads and changes the config of a bot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import BotNotReadyError
from ..messages import RTVIClientConfigOption, RTVIMessage
from ..protocol import config as configs
from ..protocol.config import Config, ConfigLike, OptionsLike
from ..protocol.dialects import require_feature
from ..protocol.validation import BOOL, NAME, STRING
from .base import DEFAULT_TIMEOUT, TIMEOUT, ClientBase, Timeout, payload_of

if TYPE_CHECKING:
    from ..messages import ConfigDescription


class BotConfig(ClientBase):
    """Config of bots that have one: RTVI 0.3, and 1.x bots that kept it.

    A config is a list of `RTVIClientConfigOption(service, [ConfigOption(name, value)])`. Mappings of that shape are
    accepted, too. A returned config is a deep copy.

    Methods that send a request may also raise `BotNotReadyError`, `DisconnectedError`, `RequestTimeoutError`,
    `RequestRejectedError`, `ProtocolError` (the answer cannot be decoded) and `UnsupportedFeatureError` (the bot's
    version has no config, or the bot said so). Their `timeout` is the limit of the call in seconds; default: the
    client's `request_timeout`; None: no limit.
    """

    @property
    def config(self) -> Config | None:
        """The bot's config as last received: after `connect()`, and after each `config` message. None: the bot has sent
        none.
        """
        config = self._life.config
        return configs.config_of(config) if config is not None else None

    def get_bot_config(self, timeout: Timeout = DEFAULT_TIMEOUT) -> Config:
        """Request the bot's config. The event `config` follows."""
        return configs.config_of(payload_of(self._ask(RTVIMessage("get-config", {}), timeout)).config)

    get_config = get_bot_config

    def update_config(
        self, config: ConfigLike, interrupt: bool = False, timeout: Timeout = DEFAULT_TIMEOUT
    ) -> RTVIMessage:
        """Change options of the bot; all other options stay. The events `config` and `config_updated` follow.

        Args:
            config: The options to change.
            interrupt: True: change them at once, and interrupt the bot. False: after its current turn.

        Returns:
            The bot's message with its whole config.

        Raises:
            ConfigUpdateError: The bot refused the change. The event `message_error` follows.
            TypeError: `config` is not a config, or contains a value that is not JSON.
        """
        BOOL.check(interrupt=interrupt)
        answer = self._ask(
            RTVIMessage("update-config", {"config": configs.as_json(config), "interrupt": interrupt}), timeout
        )
        payload_of(answer)
        return answer

    def describe_config(self, timeout: Timeout = DEFAULT_TIMEOUT) -> list[ConfigDescription]:
        """Request the options of the bot's services. The event `config_describe` follows."""
        return list(payload_of(self._ask(RTVIMessage("describe-config", {}), timeout)).config)

    def get_service_options_from_config(
        self, service_key: str, config: ConfigLike | None = None, timeout: Timeout = DEFAULT_TIMEOUT
    ) -> RTVIClientConfigOption | None:
        """Return the options of a service in `config`. Without `config`, request the bot's.

        Returns:
            The service's entry, or None if there is no such service.
        """
        STRING.check(service_key=service_key)
        return configs.options_of(self._given_or_asked(config, timeout), service_key)

    def get_service_option_value_from_config(
        self,
        service_key: str,
        option: str,
        config: ConfigLike | None = None,
        timeout: Timeout = DEFAULT_TIMEOUT,
    ) -> Any:
        """Return the value of an option in `config`. Without `config`, request the bot's.

        Returns:
            The value, or None if there is no such service or option.
        """
        STRING.check(service_key=service_key, option=option)
        return configs.value_of(self._given_or_asked(config, timeout), service_key, option)

    def set_service_option_in_config(
        self, service_key: str, options: OptionsLike, config: ConfigLike | None = None
    ) -> Config:
        """Return a config with one or more options of a service set. Changes nothing by itself: pass the result to
        `update_config()`.

        Args:
            service_key: The service. If `config` lacks it, it is appended.
            options: A `ConfigOption(name, value)`, a mapping of that shape, or a list of them.
            config: The config to start from. None: `client.config`, for which the bot must be ready.

        Raises:
            BotNotReadyError: There is no `config`, and no ready bot that has sent one.
            UnsupportedFeatureError: There is no `config`, and bots of this version have none.
            TypeError: `config` or `options` have another shape.
        """
        NAME.check(service_key=service_key)
        return configs.with_options(self._given_or_known(config), service_key, options)

    def set_config_options(self, config_options: ConfigLike, config: ConfigLike | None = None) -> Config:
        """Call `set_service_option_in_config()` for each service in `config_options`."""
        return configs.with_config(self._given_or_known(config), config_options)

    def _given_or_asked(self, config: ConfigLike | None, timeout: Timeout) -> ConfigLike:
        TIMEOUT.check(timeout=timeout)
        return config if config is not None else self.get_bot_config(timeout)

    def _given_or_known(self, config: ConfigLike | None) -> ConfigLike:
        if config is not None:
            return config
        session = self._life.session()
        session.check_ready()
        known = self.config
        if known is None:
            require_feature("get-config", session.engine.version)
            raise BotNotReadyError("The bot has sent no config. Pass the config to start from")
        return known
