"""The word error rate: how much heard words differ from the intended ones."""

from __future__ import annotations

import unicodedata

from ..protocol.validation import STRING


def word_error_rate(reference: str, said: str) -> float:
    """Return the word error rate: missing, wrong and extra words, divided by the number of words in the reference.

    0.0 means the same words; values above 1.0 are possible. Case, punctuation and the encoding of characters don't
    count. Words are separated by spaces, so the rate is useless for writing without spaces, such as Chinese. If the
    reference is empty, it is the number of words in `said`.

    Args:
        reference: The intended words.
        said: The words that were heard.
    """
    STRING.check(reference=reference, said=said)
    meant, heard = _words(reference), _words(said)
    # The Levenshtein distance: errors from the first words of `meant` to each prefix of `heard`.
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
