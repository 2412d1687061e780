"""Explain an error: its meaning, its cause and its cure.

The last line of an error names its word. A part of the error's text works, too. Without a word, all are listed.

  rtvi-sync explain unreachable
"""

from __future__ import annotations

import argparse
import difflib

from rtvi_sync import RTVIError
from rtvi_sync.explanations import DOCUMENTATION, EXPLANATIONS, Explanation, explanations_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("words", nargs="*", metavar="WORD", help="the word, or the text of the error in quotes")


def run(arguments: argparse.Namespace) -> int:
    """Print the explanations."""
    if arguments.words:
        print("\n\n".join(_paragraph(each) for word in arguments.words for each in _found(word)))
        return 0
    for group, explanations in EXPLANATIONS.items():
        print(f"{group}:")
        for each in explanations:
            print(f"  {each.word:<18}{each.text}")
    return 0


def _found(word: str) -> list[Explanation]:
    known = {each.word: each for group in EXPLANATIONS.values() for each in group}
    found = [known[word]] if word in known else explanations_of(word)
    found = found or [each for each in known.values() if word in each.text]
    found = found or [each for each in known.values() if word in f"{each.cause} {each.cure}"]
    if not found:
        near = difflib.get_close_matches(word, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else "rtvi-sync explain lists those that are"
        raise RTVIError(f"{word!r} is not explained; {hint}")
    return found


def _paragraph(explanation: Explanation) -> str:
    lines = [f"{explanation.word}: {explanation.text!r}", explanation.cause, explanation.cure]
    if explanation.page:
        lines.append(f"More: the page {explanation.page} of the documentation.")
    if DOCUMENTATION:
        lines.append(f"{DOCUMENTATION}guides/errors.html#{explanation.word}")
    return "\n  ".join(lines).replace("`", "")
