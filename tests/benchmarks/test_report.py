"""The pages and the table in the terminal show all measured figures, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from benchmarks import report
from benchmarks.__main__ import PAGES
from benchmarks.results import Results
from benchmarks.tables import Row

pytestmark = pytest.mark.matrix

DOCS = Path(__file__).parents[2] / "docs"

SLOW = {"processor": "slow, 2 cores", "attrs": "26.1.0"}
FAST = {"processor": "fast, 2 cores", "attrs": "26.1.0"}
RESULTS = Results(
    measured={"events": "3 rounds", "connect": "3 rounds", "timeouts": "1 round"},
    machines={"events": SLOW, "connect": FAST, "timeouts": SLOW},
    rounds={
        "events": {
            "ours": [{"per_second": 300.0}, {"per_second": 900.0}, {"per_second": 500.0}],
            "ref": [{"per_second": 100.0}, {"per_second": 300.0}, {"per_second": 250.0}],
            "client-js-webrtc": [{"failed": "it broke"}] * 3,
            "raw": [{"cannot": "it is too simple"}] * 3,
        },
        "connect": {"ours": [{"close_ms": 1.5}], "client-js-webrtc": [{"failed": "it broke"}]},
        "timeouts": {"ours": [{"request_ms": 1.5}, {"failed": "too late"}, {"failed": "too late"}]},
    },
)


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_results_give(name: str) -> None:
    """The generated parts of a page match docs/background/performance.json."""
    text = (DOCS / name).read_text(encoding="utf-8")

    assert PAGES[name](text, Results.load(DOCS / "background" / "performance.json")) == text


def test_the_page_is_short() -> None:
    """docs/background/performance.md has at most 1,200 words."""
    assert len((DOCS / "background" / "performance.md").read_text(encoding="utf-8").split()) <= 1200


def test_each_measurement_names_its_machine() -> None:
    """A measurement is of one machine, with all its peers: the page lists the scenarios below their machine."""
    assert report.part("machines", RESULTS).splitlines() == [
        "* slow, 2 cores",
        "  * 1 round: timeouts",
        "  * 3 rounds: events",
        "* fast, 2 cores",
        "  * 3 rounds: connect",
    ]


def test_figures_are_medians_and_a_ratio_is_the_median_of_those_of_the_rounds() -> None:
    """A disturbed round disturbs its own ratio alone: 3, 3 and 2 give 3, where the medians would give 2."""
    table = report.part("quick", RESULTS).splitlines()

    assert table[0] == "|  | ours | ref | x ref | target |  |"
    assert "| events a second, burst | 500 | 250 | 3.00 | ≥ 2.5 x | met |" in table
    assert "| close p50, ms | 1.50 | - | - | ≤ 2 x | not measured |" in table


def test_targets_are_judged() -> None:
    """A figure meets its target, or misses it by a share, or was not measured; without a target it is not judged."""
    lines = report.part("further", RESULTS).splitlines()

    assert "| request p50, µs | - | - | - | ≤ 0.95 x | not measured |" in lines
    assert "| request given up late by, ms | 1.50 | - | - | ≤ 2 | met, 2 of 3 rounds failed |" in lines
    assert "| audio frames a second, up | - | - | - | - | not measured |" in lines


def test_the_table_in_the_terminal() -> None:
    """The columns are aligned, and one line names the missing figures of the shown rows."""
    lines = report.terminal(RESULTS).splitlines()

    assert lines[0].split() == ["ours", "ref", "x", "ref", "target"]
    (row,) = (line for line in lines if line.startswith("events a second, burst"))
    assert row.endswith("   500  250   3.00   ≥ 2.5 x  met")
    assert lines[-1] == "not measured: client-js-webrtc, events, connect: it broke; raw, events: it is too simple"
    whole = attrs.evolve(RESULTS, rounds={"events": {"ours": [{"per_second": 1.0}]}})
    assert "not measured:" not in report.terminal(whole)


@pytest.mark.parametrize(
    ("limits", "value", "judgement"),
    [
        ({"least": 2.0}, 2.0, "met"),
        ({"least": 2.0}, 1.5, "missed by 25%"),
        ({"most": 2.0}, 2.0, "met"),
        ({"most": 2.0}, 3.0, "missed by 50%"),
        ({"most": 0.0}, 3.0, "missed"),
        ({}, 3.0, ""),
    ],
)
def test_a_limit_itself_is_enough(limits: dict[str, Any], value: float, judgement: str) -> None:
    """The limit is met by the limit; a miss is given as a share of it."""
    assert Row(words="", scenario="", figure="", **limits).judge(value) == judgement


def test_the_worst_round_is_judged() -> None:
    """Where every round has to meet a target, the median would hide the one that has not."""
    least = Row(words="", scenario="", figure="", least=2.0, every_round=True)
    most = Row(words="", scenario="", figure="", most=2.0, every_round=True)
    assert (least.figure_of([3.0, 1.0, 4.0]), most.figure_of([3.0, 1.0, 4.0])) == (1.0, 4.0)
    assert least.wanted("ref") == "≥ 2 in every round"


def test_the_reasons_for_what_is_not_there() -> None:
    """Each reason names a peer, its scenarios, and the rounds if some have figures."""
    assert report.part("gaps", RESULTS) == (
        "- client-js-webrtc, events, connect: it broke\n"
        "- raw, events: it is too simple\n"
        "- ours, timeouts (2 of 3 rounds): too late\n"
    )


def test_what_stands_around_the_marks_stays() -> None:
    """The text between two marks changes, the rest stays, and a second run changes nothing."""
    text = "before\n<!-- begin gaps -->\nold\n<!-- end gaps -->\nafter\n"

    made = report.page(text, RESULTS)

    assert made.startswith("before\n<!-- begin gaps -->\n- client-js-webrtc")
    assert made.endswith("<!-- end gaps -->\nafter\n")
    assert report.page(made, RESULTS) == made


def test_results_are_kept_as_they_are(tmp_path: Path) -> None:
    """Saved results are loaded again; without a file there are none."""
    RESULTS.save(tmp_path / "new" / "results.json")

    assert Results.load(tmp_path / "new" / "results.json") == RESULTS
    assert Results.load(tmp_path / "none.json") == Results()
