"""A notebook's output as HTML and as plain text. A bot's text is escaped in HTML, and cleaned in both. Pure."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from rtvi_sync.recording.text import clean, columns

from .turns import Turn

_FAINT = "opacity: 0.55"


def transcript_html(turns: Sequence[Turn], status: str) -> str:
    """Return the words of both sides; what may still change, or is not spoken yet, is faint."""
    lines = []
    for turn in turns:
        if turn.user or turn.interim:
            interim = f' <i style="{_FAINT}">{html.escape(turn.interim)}</i>' if turn.interim else ""
            lines.append(f"<div><b>you</b> {html.escape(turn.user)}{interim}</div>")
        if turn.bot:
            spoken = turn.spoken
            rest = html.escape(turn.bot[len(spoken) :])
            faint = f'<span style="{_FAINT}">{rest}</span>' if rest else ""
            lines.append(f"<div><b>bot</b> {html.escape(spoken)}{faint}</div>")
    return f'<div>{"".join(lines)}<div style="{_FAINT}">{html.escape(clean(status))}</div></div>'


def transcript_text(turns: Sequence[Turn], status: str) -> str:
    """Return the words of both sides, a line for each."""
    lines = []
    for turn in turns:
        user = f"{turn.user} {turn.interim}".strip()
        lines += [f"you: {user}"] if user else []
        lines += [f"bot: {turn.bot}"] if turn.bot else []
    return "\n".join([*lines, f"({clean(status)})"])


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


def table_text(caption: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with aligned columns."""
    return "\n".join([*caption.splitlines(), *columns(headers, rows)])
