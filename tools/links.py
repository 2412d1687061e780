"""What Sphinx has found out about the links to other sites. Standard library only."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

# Of a host, not of a page.
_UNREACHABLE = re.compile("NameResolution|NewConnection|ConnectTimeout|ConnectionReset|Max retries")


def report(file: Path) -> tuple[list[str], bool]:
    """Return the lines about broken links and about hosts that cannot be reached, and whether all links work.

    Args:
        file: Sphinx's output.json, with a link on each line.
    """
    found: list[str] = []
    lost: Counter[str] = Counter()
    working = 0
    for link in map(json.loads, file.read_text("utf-8").splitlines()):
        if link["status"] in ("working", "redirected"):
            working += 1
        elif link["status"] == "timeout" or (link["status"] == "broken" and _UNREACHABLE.search(link["info"])):
            lost[urlsplit(link["uri"]).netloc] += 1
        elif link["status"] == "broken":
            where = f"docs/{link['filename']}, line {link['lineno']}"
            found.append(f"BROKEN: {link['uri']} in {where}: {link['info'][:200]}")
    broken, unreached = len(found), sum(lost.values())
    found += [f"NOT REACHED: {host}, {count} link{'s' * (count > 1)}" for host, count in sorted(lost.items())]
    found.append(f"Links: {working} work, {broken} broken, {unreached} not reached")
    return found, not (broken or unreached)
