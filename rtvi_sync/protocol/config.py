"""A bot's config as data: services in an order that matters, each with options. Every function returns copies.

Entries are `RTVIClientConfigOption` objects, or mappings of their shape:
``{"service": "llm", "options": [{"name": "model", "value": "large"}]}``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import attrs

from .session_payloads import ConfigOption, RTVIClientConfigOption

Config: TypeAlias = list[RTVIClientConfigOption]
ConfigLike: TypeAlias = Iterable[RTVIClientConfigOption | Mapping[str, Any]]
OptionLike: TypeAlias = ConfigOption | Mapping[str, Any]
OptionsLike: TypeAlias = OptionLike | Iterable[OptionLike]


def config_of(value: ConfigLike) -> Config:
    """A deep copy of a config, every entry an `RTVIClientConfigOption`.

    Raises:
        TypeError: it is not a list of services with options; the message says where.
    """
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        raise TypeError(f"A config is a list of services, not {type(value).__name__}")
    return [_service_of(entry, f"config[{index}]") for index, entry in enumerate(value)]


def as_json(config: ConfigLike) -> list[dict[str, Any]]:
    """The config as JSON has it. Raises as `config_of()` does."""
    return [
        {
            "service": entry.service,
            "options": [{"name": option.name, "value": option.value, **option.extra} for option in entry.options],
            **entry.extra,
        }
        for entry in config_of(config)
    ]


def options_of(config: ConfigLike, service: str) -> RTVIClientConfigOption | None:
    """The first entry of `service`; None if there is none."""
    return next((entry for entry in config_of(config) if entry.service == service), None)


def value_of(config: ConfigLike, service: str, option: str) -> Any:
    """The value of an option; None if there is no such service or option."""
    entry = options_of(config, service)
    return next((item.value for item in entry.options if item.name == option), None) if entry is not None else None


def with_options(config: ConfigLike, service: str, options: OptionsLike) -> Config:
    """The config with one option, or several, of a service set. What is new is appended, the order stays.

    Raises:
        TypeError: something is neither a config nor an option; the message says what.
    """
    changed = config_of(config)
    position = next((index for index, entry in enumerate(changed) if entry.service == service), len(changed))
    if position == len(changed):
        changed.append(RTVIClientConfigOption(service))
    entry = changed[position]
    given = [options] if isinstance(options, (ConfigOption, Mapping)) else options
    merged = {option.name: option for option in entry.options}
    for option in _options_of(given, "options"):
        merged[option.name] = option
    changed[position] = attrs.evolve(entry, options=tuple(merged.values()))
    return changed


def with_config(config: ConfigLike, changes: ConfigLike) -> Config:
    """The config with all options of `changes` set, as by `with_options()` for each service."""
    changed = config_of(config)
    for entry in config_of(changes):
        changed = with_options(changed, entry.service, entry.options)
    return changed


def _service_of(entry: Any, where: str) -> RTVIClientConfigOption:
    if isinstance(entry, RTVIClientConfigOption):
        service, options, extra = entry.service, entry.options, copy.deepcopy(entry.extra)
    else:
        _check_mapping(entry, where, RTVIClientConfigOption, "service", "options")
        service, options, extra = entry.get("service"), entry.get("options", ()), _others(entry, "service", "options")
    return RTVIClientConfigOption(
        _text(service, "service", where), _options_of(options, f"{where}.options"), extra=extra
    )


def _options_of(options: Any, where: str) -> tuple[ConfigOption, ...]:
    if isinstance(options, (str, Mapping)) or not isinstance(options, Iterable):
        raise TypeError(f"{where} is a list of options, not {type(options).__name__}")
    return tuple(_option_of(option, f"{where}[{index}]") for index, option in enumerate(options))


def _option_of(option: Any, where: str) -> ConfigOption:
    if isinstance(option, ConfigOption):
        name, value, extra = option.name, option.value, copy.deepcopy(option.extra)
    else:
        _check_mapping(option, where, ConfigOption, "name", "value")
        name, value, extra = option.get("name"), option.get("value"), _others(option, "name", "value")
    return ConfigOption(_text(name, "name", where), copy.deepcopy(value), extra=extra)


def _check_mapping(value: Any, where: str, cls: type[object], *keys: str) -> None:
    if not isinstance(value, Mapping):
        shape = ", ".join(f'"{key}": ...' for key in keys)
        raise TypeError(f"{where} is a {cls.__name__} or {{{shape}}}, not {type(value).__name__}")


def _text(value: Any, key: str, where: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{where} needs a {key!r} that is a string")
    return value


def _others(mapping: Mapping[str, Any], *known: str) -> dict[str, Any]:
    return {name: copy.deepcopy(value) for name, value in mapping.items() if name not in known}
