"""Configs as data: results, unchanged arguments, and refusals of the functions."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtvi_sync.messages import ConfigOption, RTVIClientConfigOption
from rtvi_sync.protocol.config import as_json, config_of, options_of, value_of, with_config, with_options

pytestmark = pytest.mark.inside

NAMES = st.sampled_from(["model", "voice", "params", "name", "value", ""])
KEYS = st.sampled_from(["llm", "tts", "stt", "vad", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
EXTRA = st.dictionaries(st.sampled_from(["more", "type"]), VALUES, max_size=1)


def _option(name: str, value: Any, extra: dict[str, Any], kind: str) -> Any:
    return ConfigOption(name, value, extra=extra) if kind == "object" else {"name": name, "value": value, **extra}


def _entry(service: str, options: list[Any], extra: dict[str, Any], kind: str) -> Any:
    if kind == "object":
        return RTVIClientConfigOption(service, options, extra=extra)
    return {"service": service, "options": options, **extra}


KINDS = st.sampled_from(["object", "mapping"])
OPTION = st.builds(_option, NAMES, VALUES, EXTRA, KINDS)


def _name(thing: Any) -> str:
    key = "name" if hasattr(thing, "value") or (isinstance(thing, dict) and "name" in thing) else "service"
    return str(thing[key] if isinstance(thing, dict) else getattr(thing, key))


OPTIONS = st.lists(OPTION, max_size=3, unique_by=_name)
CONFIG = st.lists(st.builds(_entry, KEYS, OPTIONS, EXTRA, KINDS), max_size=4, unique_by=_name)


def entry(service: str, **options: Any) -> RTVIClientConfigOption:
    return RTVIClientConfigOption(service, [ConfigOption(name, value) for name, value in options.items()])


class TestForms:
    @settings(max_examples=30)
    @given(CONFIG)
    def test_one_meaning(self, config: list[Any]) -> None:
        """Objects, mappings, and both in one another mean the same; as JSON, too, nothing is lost."""
        copied = config_of(config)
        assert config_of(as_json(config)) == copied
        assert config_of(copied) == copied
        assert json.loads(json.dumps(as_json(config))) == as_json(copied)
        assert [e.service for e in copied] == [_name(e) for e in config]
        assert all(isinstance(option, ConfigOption) for e in copied for option in e.options)

    def test_as_json(self) -> None:
        """as_json() returns a config in the bots' form, with the other fields that bots sent."""
        config: list[RTVIClientConfigOption | dict[str, Any]] = [
            RTVIClientConfigOption("llm", (ConfigOption("model", "large", extra={"type": "string"}),), extra={"on": 1}),
            {"service": "tts"},
        ]
        assert as_json(config) == [
            {"service": "llm", "options": [{"name": "model", "value": "large", "type": "string"}], "on": 1},
            {"service": "tts", "options": []},
        ]

    def test_any_iterable(self) -> None:
        """A config, and options, may be any iterable."""
        mapping = {"service": "llm", "options": ({"name": n, "value": 1} for n in "ab")}
        assert config_of(iter([mapping])) == [entry("llm", a=1, b=1)]
        assert config_of(()) == []

    @pytest.mark.parametrize(
        ("config", "where"),
        [
            (None, " must be a list of services, not None"),
            ("llm", " must be a list of services, not str"),
            ({"service": "llm"}, " must be a list of services, not dict"),
            (5, " must be a list of services, not int"),
            (["llm"], r"\[0\] must be a RTVIClientConfigOption or .*service.*options.*, not str"),
            ([{"service": "a"}, None], r"\[1\] must be a .*, not NoneType"),
            ([ConfigOption("model")], r"\[0\] must be a RTVIClientConfigOption or .*, not ConfigOption"),
            ([{"options": []}], r"\[0\]\.service must be a string"),
            ([{"service": 5}], r"\[0\]\.service must be a string"),
            ([{"service": "a", "options": "x"}], r"\[0\]\.options must be a list of options, not str"),
            ([{"service": "a", "options": {"name": "b"}}], r"\[0\]\.options must be a list of options, not dict"),
            ([{"service": "a", "options": None}], r"\[0\]\.options must be a list of options, not None"),
            ([{"service": "a", "options": [{"name": "b"}, 5]}], r"\[0\]\.options\[1\] must be a ConfigOption or"),
            ([{"service": "a", "options": [{"value": 1}]}], r"\[0\]\.options\[0\]\.name must be a string"),
        ],
    )
    def test_what_is_no_config(self, config: Any, where: str) -> None:
        """Every function refuses it, and the error says where."""
        for call in (
            lambda: config_of(config),
            lambda: as_json(config),
            lambda: options_of(config, "a"),
            lambda: value_of(config, "a", "b"),
            lambda: with_options(config, "a", []),
            lambda: with_config(config, []),
            lambda: with_config([], config),
        ):
            with pytest.raises(TypeError, match=rf"config(_options)?{where}"):
                call()

    @pytest.mark.parametrize(
        ("options", "where"),
        [
            (None, "options must be a list of options, not None"),
            ("voice", "options must be a list of options, not str"),
            ([5], r"options\[0\] must be a ConfigOption or"),
            ([{"name": "a"}, {"value": 1}], r"options\[1\]\.name must be a string"),
            ({"value": 1}, r"options\[0\]\.name must be a string"),
            (entry("llm"), "options must be a list of options, not RTVIClientConfigOption"),
        ],
    )
    def test_what_is_no_option(self, options: Any, where: str) -> None:
        """A value that is no option raises a TypeError that names its place."""
        with pytest.raises(TypeError, match=where):
            with_options([], "llm", options)


class TestCopies:
    @settings(max_examples=30)
    @given(CONFIG, CONFIG, KEYS, NAMES, OPTIONS)
    def test_inputs_are_never_changed(
        self, config: list[Any], changes: list[Any], service: str, name: str, options: list[Any]
    ) -> None:
        """Whatever is asked of a config, it stays as it was."""
        before = copy.deepcopy((config, changes, options))
        config_of(config)
        as_json(config)
        options_of(config, service)
        value_of(config, service, name)
        with_options(config, service, options)
        with_config(config, changes)
        assert (config, changes, options) == before

    def test_results_are_deep_copies(self) -> None:
        """Changes to a result do not reach the config or the options that it was made of."""
        value = {"stop_secs": [0.8]}
        extra = {"more": [1]}
        for config in (
            [RTVIClientConfigOption("vad", (ConfigOption("params", value, extra=extra),), extra=extra)],
            [{"service": "vad", "options": [{"name": "params", "value": value, **extra}], **extra}],
        ):
            found = options_of(config, "vad")
            assert found is not None
            results = [
                found.options[0],
                config_of(config)[0].options[0],
                with_options(config, "llm", [])[0].options[0],
                with_options([], "vad", ConfigOption("params", value, extra=extra))[0].options[0],
                with_options([], "vad", {"name": "params", "value": value, **extra})[0].options[0],
                with_config([], config)[0].options[0],
                with_config(config, [])[0].options[0],
            ]
            for option in results:
                option.value["stop_secs"].append(1)
                option.extra["more"].append(2)
            value_of(config, "vad", "params")["stop_secs"].append(1)
            as_json(config)[0]["options"][0]["value"]["stop_secs"].append(1)
            as_json(config)[0]["more"].append(2)
            config_of(config)[0].extra["more"].append(2)
        assert value == {"stop_secs": [0.8]}
        assert extra == {"more": [1]}


class TestReading:
    @settings(max_examples=30)
    @given(CONFIG, KEYS, NAMES)
    def test_getters(self, config: list[Any], service: str, name: str) -> None:
        """Getters return the values in a config, and None for missing ones."""
        found = options_of(config, service)
        assert found == next((e for e in config_of(config) if e.service == service), None)
        values = [option.value for option in found.options if option.name == name] if found is not None else []
        assert value_of(config, service, name) == (values[0] if values else None)

    def test_falsy_values(self) -> None:
        """Falsy values of options are values, not missing ones."""
        config = [entry("a", zero=0, no=False, empty="", nothing=None)]
        assert [value_of(config, "a", n) for n in ("zero", "no", "empty", "nothing")] == [0, False, "", None]

    def test_the_first_entry_counts(self) -> None:
        """Where a service is there twice, getters and setters mean its first entry, and the second stays."""
        config = [entry("a", x=1), entry("b"), entry("a", x=2)]
        assert value_of(config, "a", "x") == 1
        assert with_options(config, "a", ConfigOption("x", 3)) == [entry("a", x=3), entry("b"), entry("a", x=2)]


class TestSetting:
    @settings(max_examples=30)
    @given(CONFIG, KEYS, OPTIONS)
    def test_set(self, config: list[Any], service: str, options: list[Any]) -> None:
        """A new value can be read, all else is unchanged, and services and options keep their order; new ones are
        last.
        """
        before, after = config_of(config), with_options(config, service, options)
        for option in options:
            value = option["value"] if isinstance(option, dict) else option.value
            assert value_of(after, service, _name(option)) == value
        services = [e.service for e in before]
        assert [e.service for e in after] == services + [service] * (service not in services)
        for old, new in zip(before, after, strict=False):
            assert old.extra == new.extra
            if old.service != service:
                assert old == new
                continue
            names, given = [o.name for o in old.options], [_name(o) for o in options]
            assert [o.name for o in new.options] == names + [n for n in given if n not in names]
            kept = [o for o in old.options if o.name not in given]
            assert [o for o in new.options if o.name in {k.name for k in kept}] == kept

    @settings(max_examples=30)
    @given(CONFIG, CONFIG)
    def test_set_all(self, config: list[Any], changes: list[Any]) -> None:
        """Setting several services is setting one after the other; setting twice is setting once."""
        expected = config_of(config)
        for change in config_of(changes):
            expected = with_options(expected, change.service, change.options)
        assert with_config(config, changes) == expected
        assert with_config(expected, changes) == expected

    def test_one_option_or_several(self) -> None:
        """with_options() takes one option, as object or mapping, in place of a list of one."""
        for option in (ConfigOption("a", 1), {"name": "a", "value": 1}):
            expected = [entry("llm", a=1)]
            assert with_options([], "llm", option) == expected
            assert with_options([], "llm", [option]) == expected
            assert with_options([], "llm", (o for o in [option])) == expected

    def test_an_option_twice(self) -> None:
        """Of two values for one option the last one counts."""
        options = [ConfigOption("a", 1), ConfigOption("b", 1), ConfigOption("a", 2)]
        assert with_options([], "llm", options) == [entry("llm", a=2, b=1)]

    def test_a_new_service_without_options(self) -> None:
        """An absent service is appended, even with no option to set."""
        assert with_options([entry("a")], "b", []) == [entry("a"), entry("b")]
        assert with_config([entry("a")], [entry("b")]) == [entry("a"), entry("b")]

    def test_extras(self) -> None:
        """Other fields of the bot stay in place, unless their option is set again."""
        config = [{"service": "a", "options": [{"name": "x", "value": 1, "type": "int"}], "more": [1]}]
        (same,) = with_options(config, "a", {"name": "y", "value": 2})
        assert (same.extra, same.options[0].extra) == ({"more": [1]}, {"type": "int"})
        (other,) = with_options(config, "a", {"name": "x", "value": 2})
        assert (other.extra, other.options[0].extra) == ({"more": [1]}, {})
