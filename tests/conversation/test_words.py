"""The word error rate, compared with jiwer's."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from rtvi_sync.testing import word_error_rate

# 1,000 random pairs of texts, and their word error rate by jiwer 4.0.0, its transforms ToLowerCase, RemovePunctuation,
# RemoveMultipleSpaces and Strip. jiwer itself would bring a compiled library for this one test.
PAIRS: Final = [
    line.split("\t") for line in (Path(__file__).parent / "word_error_rates.tsv").read_text("utf-8").splitlines()
]


def test_as_jiwer() -> None:
    """The rate equals jiwer's, for equal texts, texts with errors, and texts that have nothing in common."""
    assert len(PAIRS) == 1_000
    different = [(ours, rate, *pair) for rate, *pair in PAIRS if (ours := word_error_rate(*pair)) != float(rate)]
    assert different == []


@pytest.mark.parametrize(
    ("reference", "said", "rate"),
    [
        ("It rains in Oslo.", "it rains, in oslo", 0.0),
        ("It rains in Oslo.", "It rains in Bergen.", 0.25),
        ("It rains in Oslo.", "", 1.0),
        ("Yes.", "yes yes yes", 2.0),
        ("don't", "don\u2019t", 0.0),
        ("Straße", "STRASSE", 0.0),
        ("ﬁne café №5", "fine cafe\u0301 No5", 0.0),
        ("\uff11\uff12 \u3000 o'clock\n", "12 oclock", 0.0),
        ("", "", 0.0),
        ("...", "two words", 2.0),
    ],
)
def test_what_counts(reference: str, said: str, rate: float) -> None:
    """Words count; case, punctuation and the encoding of characters do not."""
    assert word_error_rate(reference, said) == rate
