"""`python -m tools.pictures [NAME ...]` makes the pictures of docs/_static, or those named. It needs Chromium."""

from __future__ import annotations

import argparse
from pathlib import Path

from tools.pictures import ALL, FOLDER, make


def main() -> None:
    """Make pictures, and print the size of each."""
    parser = argparse.ArgumentParser(prog="python -m tools.pictures", description="Make the pictures of the docs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(ALL)}; without a name, all")
    parser.add_argument("--output", type=Path, default=FOLDER, metavar="DIR", help="where they are written")
    arguments = parser.parse_args()
    if wrong := {*arguments.names} - {*ALL}:
        parser.error(f"no picture {', '.join(sorted(wrong))}; available: {', '.join(ALL)}")
    for name, content in make(arguments.names or ALL):
        path = arguments.output / name
        path.write_bytes(content)
        print(f"{path}  {len(content) / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
