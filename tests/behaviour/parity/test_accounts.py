"""Every public name of JavaScript's clients has an existing Python name, or a reason for its absence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from rtvi_sync import LLMHelper, RTVIEvent, RTVIEventCallbacks
from rtvi_sync.events import event_from
from tests.support.wire import INBOUND, OUTBOUND

from .accounts import Account, accounts, last_of, packages, resolve, spelled_in_python

ACCOUNTS = accounts()
BY_NAME = {account.js: account for account in ACCOUNTS}
PACKAGES = packages()
ALL_NAMES = {name: value for names in PACKAGES.values() for name, value in names.items()}


def tell_parity(counts: Counter[tuple[str, str]]) -> Iterable[str]:
    """Yield the table of the test run: the counterparts of the names of each package."""
    columns = ("in Python", "no counterpart", "unaccounted")
    yield "{:22}{:>8}{:>11}{:>16}{:>13}".format("parity", "names", *columns)
    for package in sorted({package for package, _ in counts}):
        numbers = [counts[package, column] for column in columns]
        yield "{:22}{:>8}{:>11}{:>16}{:>13}".format(package, sum(numbers), *numbers)


def fate(name: str) -> str:
    """Return the column of a name."""
    account = BY_NAME.get(name)
    if account is None:
        return "unaccounted"
    return "in Python" if account.python is not None else "no counterpart"


def test_no_name_is_unaccounted_for(show_table: Callable[[Any, Counter[Any]], None]) -> None:
    """Every name that a package has is accounted for."""
    show_table(tell_parity, Counter((package, fate(name)) for package, names in PACKAGES.items() for name in names))

    assert [name for name in ALL_NAMES if name not in BY_NAME] == []


def test_no_account_without_a_name() -> None:
    """Each name of the accounts exists in JavaScript, and is accounted for once."""
    assert [account.js for account in ACCOUNTS if account.js not in ALL_NAMES] == []
    assert [js for js, times in Counter(account.js for account in ACCOUNTS).items() if times > 1] == []


@pytest.mark.parametrize(
    "entry",
    [
        {"js": "connect()"},
        {"js": "connect()", "python": "RTVIClient.connect()", "reason": "none"},
        {"js": "connect()", "python": None},
        {"js": "connect()", "reason": ""},
        {"js": "connect()", "reason": "none", "remark": "and more"},
    ],
)
def test_an_account_is_a_name_or_a_reason(entry: dict[str, Any]) -> None:
    """An entry without either, or with both, is refused when the file is read."""
    with pytest.raises(ValueError, match="neither a Python name nor a reason"):
        accounts({"Section": [entry]})


def problem(account: Account) -> str:
    """Return why the Python name of an account is none; "" if it is one."""
    try:
        resolve(account.python or "")
    except LookupError as error:
        return f"{account.js}: {error.args[0]}"
    return ""


def test_python_names_exist() -> None:
    """Every Python name leads to something: a class, a method, a field, a parameter, a member of an enum."""
    assert [problem(account) for account in ACCOUNTS if account.python and problem(account)] == []


@pytest.mark.parametrize(
    "path",
    [
        "RTVIClient.fly()",
        "RTVIClient.connect",  # a method
        "RTVIClient.state()",  # a property
        "RTVIClient.connect(altitude)",
        "RTVIClientOptions.altitude",
        "RTVIEvent.FLOWN",
        "RTVIEventCallbacks.on_flown",
        "RTVIError.altitude",
        "Airplane",
        "Airplane.fly()",
        "media.Airplane",
        "",
    ],
)
def test_what_does_not_exist_is_found_out(path: str) -> None:
    """A path that leads nowhere, or to another kind of thing, does not resolve."""
    with pytest.raises(LookupError):
        resolve(path)


def test_names_are_spelled_alike() -> None:
    """A Python name is the JavaScript name in snake_case, unless a remark tells the reader otherwise."""
    different = [
        f"{account.js}: {account.python}"
        for account in ACCOUNTS
        if account.python and spelled_in_python(account.js) != spelled_in_python(account.python) and not account.remark
    ]

    assert different == []


def test_what_is_there_has_its_name() -> None:
    """A name without a Python one is not there under its own spelling; who builds it accounts for it."""
    there = []
    for account in ACCOUNTS:
        if account.python is None:
            name = spelled_in_python(account.js) if account.owner else last_of(account.js)
            path = f"{account.owner}.{name}" if account.owner else name
            spellings = (path, f"{path}()", f"media.{path}", f"media.{path}()")
            there += [it for it in spellings if not problem(Account("", account.js, it, "", ()))]
    assert there == []


# Events


@pytest.mark.parametrize("owner", ["RTVIEvent", "RTVIEvents"])
def test_events_go_by_their_javascript_names(owner: str) -> None:
    """The value of each event in JavaScript names the event that the account names."""
    for account in ACCOUNTS:
        if account.owner == owner:
            value = ALL_NAMES[account.js] or account.last
            assert event_from(value) is resolve(account.python or ""), account.js
            assert event_from(value).value == value


def event_of(callback: str) -> RTVIEvent:
    """Return the event of a callback."""
    ((event, _),) = RTVIEventCallbacks(**{callback: print}).items()
    return event


def test_callbacks_go_by_their_javascript_names() -> None:
    """Each callback, in either spelling, is one of the same event; the helper for language models has its own."""
    seen = set()
    for account in ACCOUNTS:
        if account.owner in ("RTVIEventCallbacks", "LLMHelperCallbacks") and account.python:
            seen.add(account.owner)
            assert event_of(account.last) is event_of(last_of(account.python))
            if account.owner == "LLMHelperCallbacks":
                LLMHelper({account.last: print})
    assert seen == {"RTVIEventCallbacks", "LLMHelperCallbacks"}


# Types of messages


def test_every_message_type_is_in_the_dialect_table() -> None:
    """A message of the bot leads to the event that it causes; one to the bot is sent by the method that is named."""
    unknown = []
    for account in ACCOUNTS:
        if account.owner not in ("RTVIMessageType", "LLMMessageType"):
            continue
        type_ = ALL_NAMES[account.js]
        if type_ in INBOUND:
            assert INBOUND[type_].event is resolve(account.python or ""), account.js
        elif type_ in OUTBOUND:
            assert (account.python or "").startswith("RTVIClient."), account.js
        else:
            unknown.append(type_)
            assert account.remark == "no bot sends it"
    assert unknown == ["config-error"]
