"""`python -m tools.pictures [NAME ...]` makes the pictures of docs/_static, or those named. It needs Chromium."""

from __future__ import annotations

import sys

from tools.pictures import ALL, FOLDER, make


def main(names: list[str]) -> None:
    """Make pictures, and print the size of each."""
    wrong = {*names} - {*ALL}
    if wrong:
        sys.exit(f"There is no picture {', '.join(sorted(wrong))}. Available: {', '.join(ALL)}")
    for name, content in make(names or ALL):
        path = FOLDER / name
        path.write_bytes(content)
        print(f"{path.relative_to(FOLDER.parents[1])}  {len(content) / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
