"""The explanations of errors: they are found by the texts that the package raises, and the page shows them."""

from __future__ import annotations

import pickle
import re
import sys
import traceback
from pathlib import Path

import pytest

from rtvi_sync import BotError, DisconnectedError, ExpectationError, RequestRejectedError, RTVIError, connect
from rtvi_sync.explanations import EXPLANATIONS, PAGES, explanations_of
from tools.errors_page import PAGE, page, page_named
from tools.llms import title_of

pytestmark = pytest.mark.inside

ROOT = Path(__file__).parents[1]
ALL = [each for group in EXPLANATIONS.values() for each in group]
# The joint in a source file between two parts of one text: the quotes and the end of a line.
_JOINT = re.compile(r"[\"']\n\s*f?[\"']")


def test_the_page_is_the_table() -> None:
    """A changed explanation needs `python -m tools.errors_page`."""
    assert PAGE.read_text("utf-8") == page()


def test_each_text_is_one_of_the_package() -> None:
    """The text of each explanation is part of a message in the source, also where that is written in two lines."""
    paths = [path for path in (ROOT / "rtvi_sync").rglob("*.py") if path.name != "explanations.py"]
    source = _JOINT.sub("", "\n".join(path.read_text("utf-8") for path in paths))
    assert [each.word for each in ALL if each.text not in source] == []


def test_each_word_is_one_anchor() -> None:
    """Words are unique, short and anchors; and each text leads to its own explanation."""
    assert len({each.word for each in ALL}) == len(ALL) > 30
    for each in ALL:
        assert re.fullmatch(r"[a-z]+(-[a-z]+){0,2}", each.word)
        assert explanations_of(each.text) == [each]
        assert not each.page or each.page in PAGES


def test_each_page_has_its_title() -> None:
    """The pages that an explanation names are those of the documentation, and each is named by one."""
    assert {each.page for each in ALL} - {""} == {*PAGES}
    for name, (title, path) in PAGES.items():
        assert page_named(name) == ROOT / path
        assert title_of(ROOT / path) == title


def test_a_traceback_ends_with_the_words() -> None:
    """The line below the text names the error; str() has the text alone."""
    with pytest.raises(RTVIError) as caught:
        connect("ws://127.0.0.1:1", connect_timeout=5)
    assert [each.word for each in explanations_of(str(caught.value))] == ["unreachable"]
    assert "explain" not in str(caught.value)
    if sys.version_info >= (3, 11):
        assert traceback.format_exception(caught.value)[-1] == "See: rtvi-sync explain unreachable\n"


def test_the_words_travel() -> None:
    """A pickled error keeps its note."""
    error = pickle.loads(pickle.dumps(DisconnectedError("No bot was reached")))
    assert error.__notes__ == ["See: rtvi-sync explain no-bot"]


@pytest.mark.parametrize(
    "error",
    [
        BotError("The model cannot be reached"),
        RequestRejectedError("The model cannot be reached"),
        ExpectationError("rain", "the model cannot be reached", "text_mismatch"),
        RTVIError("Something else"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_others_have_none(error: RTVIError) -> None:
    """Texts from the bot or a server are not explained."""
    assert not hasattr(error, "__notes__")
