"""How far words that were heard are from words that were meant: the word error rate."""

from __future__ import annotations

import unicodedata

from ..protocol.validation import STRING


def word_error_rate(reference: str, said: str) -> float:
    """Return the word error rate: how many words are missing, wrong or too many, for each word of the reference.

    0.0 is the same words; 1.0 and more is possible. Case, punctuation and the encoding of characters do not count, and
    blanks part the words, so it is of no use for writing without blanks, such as Chinese. Of an empty reference it is
    the number of words that were said.

    Args:
        reference: what was meant.
        said: what was heard.
    """
    STRING.check(reference=reference, said=said)
    meant, heard = _words(reference), _words(said)
    # The distance of Levenshtein: errors from the first words of `meant` to each beginning of `heard`.
    errors = list(range(len(heard) + 1))
    for count, word in enumerate(meant, 1):
        before, errors[0] = errors[0], count
        for place, other in enumerate(heard, 1):
            before, errors[place] = (
                errors[place],
                min(errors[place] + 1, errors[place - 1] + 1, before + (word != other)),
            )
    return errors[-1] / (len(meant) or 1)


def _words(text: str) -> list[str]:
    letters = unicodedata.normalize("NFKC", text).casefold()
    return "".join(letter for letter in letters if not unicodedata.category(letter).startswith("P")).split()
