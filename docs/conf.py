"""How Sphinx makes the site of these pages: `python3 run.py docs`."""

from __future__ import annotations

project = "rtvi_sync"
extensions = ["myst_parser"]
html_theme = "furo"
exclude_patterns = ["_build"]
