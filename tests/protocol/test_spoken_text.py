"""How much of a text was spoken, by words that differ from it in spaces and punctuation."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rtvi_sync.protocol.spoken_text import MAX_CHARACTERS, SpokenText, letters_of

pytestmark = pytest.mark.inside


def text_of(*pieces: str) -> SpokenText:
    text = SpokenText()
    for piece in pieces:
        text.write(piece)
    return text


def test_words_move_the_cursor() -> None:
    """Spoken words move the cursor through the written text, whatever its markup and punctuation."""
    text = text_of("**Bold** words,", " 3.5 km - and `code`: done.")
    for words, spoken in (("bold", "**Bold**"), ("words", "**Bold** words,"), ("3.5 km", "**Bold** words, 3.5 km")):
        assert text.speak(words)
        assert text.spoken == spoken
    assert text.speak("and code done")
    assert (text.spoken, text.due_letters) == (text.text, 0)


def test_words_that_do_not_come_next() -> None:
    """Words that are not the next ones of the text do not move the cursor."""
    text = text_of("a" * 60, " end")
    assert not text.speak("other")
    assert not text.speak("end")  # too far ahead for the current words
    assert text.spoken == ""


def test_forty_letters_may_be_skipped() -> None:
    """Words count as next if at most 40 letters lie between, which filters may have removed."""
    assert text_of("a" * 40, " end").speak("end")
    assert not text_of("a" * 41, " end").speak("end")


def test_a_text_that_grows_behind_the_cursor() -> None:
    """A cursor that is set far ahead stays at the end of the text, and later text is still due."""
    text = text_of("Yes.")
    text.speak_until(50)
    text.write(" No.")
    assert (text.spoken, text.due_letters) == ("Yes.", 2)


def test_segments_are_found_in_their_order() -> None:
    """Segments are found in their order, and the cursor never moves back."""
    text = text_of("Yes. No. Yes.")
    assert [text.locate("Yes."), text.locate("No."), text.locate("Yes."), text.locate("Yes.")] == [0, 3, 5, None]
    text.speak_until(5)
    text.speak_until(3)
    assert text.spoken == "Yes. No."


def test_letters_without_case() -> None:
    """Words are compared without case, even where a change of case changes the number of letters."""
    assert letters_of("Straße, 3.5!") == "strasse35"
    text = text_of("Straße, ja")
    assert text.speak("STRASSE")
    assert text.spoken == "Straße,"
    text = text_of("ßßß ja")
    assert text.speak("SSSSSS")
    assert text.spoken == "ßßß"


@given(st.text(), st.integers(0))
@example("abc\u0345", 3)  # no letter, but without case it is one
def test_any_text(text: str, letters: int) -> None:
    """The spoken text is the start of the text, at any length."""
    cursor = text_of(text)
    cursor.speak_until(letters)
    assert text.startswith(cursor.spoken)
    assert letters_of(cursor.spoken).startswith(cursor.letters[:letters])


def test_a_text_is_bounded() -> None:
    """A text is cut at `MAX_CHARACTERS`."""
    text = text_of("a" * MAX_CHARACTERS, "more")
    assert len(text.text) == len(text.letters) == MAX_CHARACTERS


def test_what_is_not_meant_to_be_spoken_is_not_due() -> None:
    """Text that is not meant to be spoken is not waited for."""
    text = text_of("Yes. (smiles)")
    text.unspoken_letters = len("smiles")
    assert text.speak("Yes.")
    assert text.due_letters == 0
