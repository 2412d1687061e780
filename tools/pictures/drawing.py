"""A diagram as SVG, of which the same calls make the same bytes."""

from __future__ import annotations

from html import escape

INK, FAINT, PAPER, EDGE = "#1f2937", "#6b7280", "#ffffff", "#d1d5db"
USER, BOT, WORK = "#2563eb", "#15803d", "#b45309"
WIDTH = 560  # pixels: a telephone scales it to two thirds, where its text is still readable
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


class Drawing:
    """Shapes on a white card, which is as readable on a dark page. All lengths are pixels.

    Args:
        width, height: of the card.
        title: for readers who cannot see it.
    """

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" font-family="{_FONT}" font-size="15">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="{FAINT}"/></marker></defs>',
        ]
        self.box(0.5, 0.5, width - 1, height - 1, fill=PAPER, edge=EDGE, radius=10)

    def box(
        self, x: float, y: float, width: float, height: float, *, fill: str, edge: str = "none", radius: int = 6
    ) -> None:
        """Draw a rectangle."""
        self._parts.append(
            f'<rect x="{x:.5g}" y="{y:g}" width="{width:.5g}" height="{height:g}" rx="{radius}" '
            f'fill="{fill}" stroke="{edge}"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        ink: str = INK,
        anchor: str = "start",
        bold: bool = False,
        size: int = 15,
        halo: bool = False,
    ) -> None:
        """Draw a line of text, whose middle is at `y`. A halo hides lines behind it."""
        more = ' font-weight="600"' * bold
        more += f' stroke="{PAPER}" stroke-width="5" paint-order="stroke"' * halo
        self._parts.append(
            f'<text x="{x:.5g}" y="{y:.5g}" dy=".35em" fill="{ink}" text-anchor="{anchor}" '
            f'font-size="{size}"{more}>'
            f"{escape(words, quote=False)}</text>"
        )

    def upright(self, x: float, y: float, words: str, *, ink: str) -> None:
        """Draw a line of text that is read from top to bottom, whose middle is at `x` and `y`."""
        self._parts.append(
            f'<text transform="translate({x:g} {y:g}) rotate(90)" fill="{ink}" text-anchor="middle">{words}</text>'
        )

    def path(self, d: str, *, ink: str = FAINT, tip: bool = False, dashed: bool = False) -> None:
        """Draw a line, with an arrow's tip at its end or without."""
        more = ' marker-end="url(#tip)"' * tip + ' stroke-dasharray="4 4"' * dashed
        self._parts.append(f'<path d="{d}" fill="none" stroke="{ink}" stroke-width="1.5"{more}/>')

    def badge(self, x: float, y: float, words: str) -> None:
        """Draw a short text in a circle."""
        self._parts.append(f'<circle cx="{x:.5g}" cy="{y:.5g}" r="11" fill="{PAPER}" stroke="{FAINT}"/>')
        self.text(x, y, words, anchor="middle", size=13)

    def svg(self) -> str:
        """Return the file's text."""
        return "\n".join([*self._parts, "</svg>", ""])
