"""Explain an error: its meaning, its cause and its cure.

The last line of an error names its word. A part of the error's text, its class or its status work, too. Without a word,
all are listed.

  rtvi-sync explain unreachable
"""

from __future__ import annotations

import argparse
import difflib

from rtvi_sync import RTVIError, errors
from rtvi_sync.explanations import DOCUMENTATION, EXPLANATIONS, PAGES, Explanation
from rtvi_sync.protocol.text import quoted

_ALL = {each.word: each for group in EXPLANATIONS.values() for each in group}
# The words around those of an error in its last line, which may be pasted whole.
_OF_THE_LINE = {"see:", "rtvi-sync", "explain"}
# A shorter text, unless it is a number, is found nearly everywhere.
_MIN_LENGTH = 4
# More explanations than these are listed, one a line.
_MAX_PARAGRAPHS = 4
_MAX_SHOWN = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="the word; or the text, the class or the status of the error"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the explanations."""
    given = " ".join(arguments.words)
    words = [word for word in given.lower().split() if word not in _OF_THE_LINE]
    if not words:
        for group, explanations in EXPLANATIONS.items():
            print(f"{group}:")
            print("\n".join(map(_line, explanations)))
        return 0
    known = [_ALL[word] for word in dict.fromkeys(words) if word in _ALL]
    rest = [word for word in words if word not in _ALL]
    if len(rest) > _MAX_PARAGRAPHS:  # a text, whose words alone mean nothing
        rest = [" ".join(rest)]
    if rest and (found := _about(" ".join(given.split()))):
        print(found)
        return 0
    paragraphs = [*map(_paragraph, known), *filter(None, map(_about, rest))]
    if paragraphs:
        print("\n\n".join(paragraphs))
    if unknown := [word for word in rest if not _about(word)]:
        near = difflib.get_close_matches(unknown[0], _ALL, 1)
        hint = f"did you mean {near[0]!r}?" if near else "rtvi-sync explain lists those that are"
        raise RTVIError(f"{quoted(' '.join(unknown), _MAX_SHOWN)} is not explained; {hint}")
    return 0


def _about(text: str) -> str:
    """Return what is known of an error's text, class or status; "" if nothing is."""
    text = text.lower()
    classes = {name.lower(): value for name, value in vars(errors).items() if _is_error(value)}
    if (error := classes.get(text)) is not None:
        return f"{error.__name__}: {(error.__doc__ or '').partition(chr(10))[0]}"
    found = [each for each in _ALL.values() if each.text.lower() in text]
    if not found and (len(text) >= _MIN_LENGTH or text.isdecimal()):
        found = [each for each in _ALL.values() if text in each.text.lower()]
        found = found or [each for each in _ALL.values() if text in f"{each.cause} {each.cure}".lower()]
    show, between = (_paragraph, "\n\n") if len(found) <= _MAX_PARAGRAPHS else (_line, "\n")
    return between.join(map(show, found))


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, RTVIError)


def _line(explanation: Explanation) -> str:
    return f"  {explanation.word:<18}{explanation.text}"


def _paragraph(explanation: Explanation) -> str:
    lines = [f"{explanation.word}: {explanation.text!r}", explanation.cause, explanation.cure]
    if explanation.page:
        title, path = PAGES[explanation.page]
        lines.append(f"More: {title} ({path})")
    if DOCUMENTATION:
        lines.append(f"{DOCUMENTATION}guides/errors.html#{explanation.word}")
    return "\n  ".join(lines).replace("`", "")
