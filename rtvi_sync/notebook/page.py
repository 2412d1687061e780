"""A notebook's output as HTML and as plain text. A bot's text is escaped in HTML, and cleaned in both. Pure."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Sequence

from rtvi_sync.conversation.record import TurnRecord
from rtvi_sync.protocol.text import LONGEST_LINE, clean
from rtvi_sync.recording.tables import columns
from rtvi_sync.recording.transcript import is_heard

# Characters that are shown of each side of a turn.
_MAX_TEXT = 20_000
_FAINT = "opacity: 0.55"
_FRAME_HEIGHT = 480


def transcript_html(turns: Sequence[TurnRecord], status: str) -> str:
    """Return the words of both sides. Words that may still change, or are not spoken yet, are faint."""
    lines = []
    for turn in turns:
        if user := _clean(turn.user_text):
            is_final = turn.modality != "audio" or is_heard(turn)
            lines.append(f"<div><b>you</b> {html.escape(user) if is_final else _faint('i', user)}</div>")
        spoken, rest = _answer(turn)
        if spoken or rest:
            lines.append(f"<div><b>bot</b> {html.escape(spoken)}{_faint('span', rest) if rest else ''}</div>")
    return f"<div>{''.join(lines)}{_faint('div', clean(status))}</div>"


def transcript_text(turns: Sequence[TurnRecord], status: str) -> str:
    """Return the words of both sides, a line for each. Words that an interruption cut off are marked."""
    lines = []
    for turn in turns:
        if user := _clean(turn.user_text):
            lines.append(f"you: {user}")
        spoken, rest = _answer(turn)
        if rest.strip() and turn.interrupted:
            lines.append(" ".join(filter(None, ("bot:", spoken.rstrip(), f"[not heard: {rest.strip()}]"))))
        elif spoken or rest:
            lines.append(f"bot: {spoken}{rest}")
    return "\n".join([*lines, f"({clean(status)})"])


def _answer(turn: TurnRecord) -> tuple[str, str]:
    """Return the bot's words in two parts: the spoken ones, and the rest."""
    bot = _clean(turn.bot_text)
    # A bot that reports no progress may have spoken everything.
    said = _clean(turn.spoken_text) if turn.spoken_exact else bot
    spoken = os.path.commonprefix([bot, said])  # noqa: RUF071 - characters are meant
    return spoken, bot[len(spoken) :]


def _clean(text: str | None) -> str:
    text = text or ""  # not known
    pieces = (text[start : start + LONGEST_LINE] for start in range(0, min(len(text), _MAX_TEXT), LONGEST_LINE))
    return "".join(map(clean, pieces))


def _faint(tag: str, text: str) -> str:
    return f'<{tag} style="{_FAINT}">{html.escape(text)}</{tag}>'


def frame_html(title: str, page: str) -> str:
    """Return a whole page as a part of the output. Its script runs, but cannot reach the notebook."""
    return (
        f'<iframe title="{html.escape(title)}" sandbox="allow-scripts" srcdoc="{html.escape(page)}" '
        f'style="width: 100%; height: {_FRAME_HEIGHT}px; border: 0; resize: vertical; overflow: auto"></iframe>'
    )


def table_html(caption: str, headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table.

    Args:
        caption: text; "": no caption.
        headers: text.
        rows: cells of HTML.
    """
    head = "".join(f"<th>{html.escape(header)}</th>" for header in headers)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    title = f"<div>{html.escape(caption)}</div>" if caption else ""
    return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def table_text(caption: str, headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> str:
    """Return a table with aligned columns, the first `texts` of them of text."""
    return "\n".join([*caption.splitlines(), *columns(headers, rows, texts)])
