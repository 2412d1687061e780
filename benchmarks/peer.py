"""One measurement: `python -m benchmarks.peer NAME SCENARIO URL` prints a JSON object of figures.

It runs in a fresh process, which no earlier measurement has influenced. If the library cannot do it, the object is
`{"cannot": "why"}`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from .peers import PEERS, find
from .scenarios import SCENARIOS


def figures_of(name: str, scenario: str, url: str, effort: float) -> Mapping[str, Any]:
    """Return the figures of one peer, or the reason why there are none."""
    peer = find(name)
    if scenario in peer.cannot:
        return {"cannot": peer.cannot[scenario]}
    if scenario in peer.own:
        return peer.own[scenario](url, effort)
    return SCENARIOS[scenario](peer, url, effort)


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("url")
    parser.add_argument(
        "--effort", type=float, default=1.0, help="fraction of the measurement; 1 is enough for a figure"
    )
    arguments = parser.parse_args()
    print(json.dumps(figures_of(arguments.peer, arguments.scenario, arguments.url, arguments.effort)))


if __name__ == "__main__":
    main()
