"""A bot's config as data: services in a significant order, each with options. Every function returns copies.

Entries are `RTVIClientConfigOption` objects, or mappings of their shape:
``{"service": "llm", "options": [{"name": "model", "value": "large"}]}``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import attrs

from .session_payloads import ConfigOption, RTVIClientConfigOption
from .validation import STRING, iterable

Config: TypeAlias = list[RTVIClientConfigOption]
ConfigLike: TypeAlias = Iterable[RTVIClientConfigOption | Mapping[str, Any]]
OptionLike: TypeAlias = ConfigOption | Mapping[str, Any]
OptionsLike: TypeAlias = OptionLike | Iterable[OptionLike]


_SERVICES = iterable("a list of services")
_OPTIONS = iterable("a list of options")


def config_of(value: ConfigLike, name: str = "config") -> Config:
    """Return a deep copy of a config, every entry an `RTVIClientConfigOption`.

    Raises:
        TypeError: it is not a list of services with options; the message names the place.
    """
    _SERVICES.check_one(name, value)
    return [_service_of(entry, f"{name}[{index}]") for index, entry in enumerate(value)]


def as_json(config: ConfigLike) -> list[dict[str, Any]]:
    """Return the config as plain JSON. Raises as `config_of()` does."""
    return [
        {
            "service": entry.service,
            "options": [{"name": option.name, "value": option.value, **option.extra} for option in entry.options],
            **entry.extra,
        }
        for entry in config_of(config)
    ]


def options_of(config: ConfigLike, service: str) -> RTVIClientConfigOption | None:
    """Return the first entry of `service`, or None."""
    return next((entry for entry in config_of(config) if entry.service == service), None)


def value_of(config: ConfigLike, service: str, option: str) -> Any:
    """Return the value of an option. None if there is no such service or option."""
    entry = options_of(config, service)
    return next((item.value for item in entry.options if item.name == option), None) if entry is not None else None


def with_options(config: ConfigLike, service: str, options: OptionsLike) -> Config:
    """Return the config with one or more options of a service set. New entries are appended; the order is kept.

    Raises:
        TypeError: An argument is not a config or an option. The message names the wrong place.
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
    """Return the config with all options of `changes` set, as by `with_options()` for each service."""
    changed = config_of(config)
    for entry in config_of(changes, "config_options"):
        changed = with_options(changed, entry.service, entry.options)
    return changed


def _service_of(entry: Any, where: str) -> RTVIClientConfigOption:
    if isinstance(entry, RTVIClientConfigOption):
        service, options, extra = entry.service, entry.options, _copied(entry.extra, where)
    else:
        _check_mapping(entry, where, RTVIClientConfigOption, "service", "options")
        service, options, extra = (
            entry.get("service"),
            entry.get("options", ()),
            _others(entry, where, "service", "options"),
        )
    return RTVIClientConfigOption(
        _text(service, f"{where}.service"), _options_of(options, f"{where}.options"), extra=extra
    )


def _options_of(options: Any, where: str) -> tuple[ConfigOption, ...]:
    _OPTIONS.check_one(where, options)
    return tuple(_option_of(option, f"{where}[{index}]") for index, option in enumerate(options))


def _option_of(option: Any, where: str) -> ConfigOption:
    if isinstance(option, ConfigOption):
        name, value, extra = option.name, option.value, _copied(option.extra, where)
    else:
        _check_mapping(option, where, ConfigOption, "name", "value")
        name, value, extra = option.get("name"), option.get("value"), _others(option, where, "name", "value")
    return ConfigOption(_text(name, f"{where}.name"), _copied(value, f"{where}['value']"), extra=extra)


def _copied(value: Any, where: str) -> Any:
    try:
        return copy.deepcopy(value)
    except RecursionError:
        raise ValueError(f"{where} is nested too deeply for JSON. Pass data with fewer levels") from None
    except TypeError:  # a lock or a file, for example
        raise TypeError(f"{where} holds an object that cannot be copied. Pass plain JSON data") from None


def _check_mapping(value: Any, where: str, cls: type[object], *keys: str) -> None:
    if not isinstance(value, Mapping):
        shape = ", ".join(f'"{key}": ...' for key in keys)
        raise TypeError(f"{where} must be a {cls.__name__} or {{{shape}}}, not {type(value).__name__}")


def _text(value: Any, where: str) -> str:
    STRING.check_one(where, value)
    return str(value)


def _others(mapping: Mapping[str, Any], where: str, *known: str) -> dict[str, Any]:
    return {name: _copied(value, f"{where}[{name!r}]") for name, value in mapping.items() if name not in known}
