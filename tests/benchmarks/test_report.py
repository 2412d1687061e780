"""The page says what was measured, and nothing that was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import plots, report
from benchmarks.results import Results
from benchmarks.tables import Target

pytestmark = pytest.mark.matrix

DOCS = Path(__file__).parents[2] / "docs"

RESULTS = Results(
    measured={"events": "3 rounds", "connect": "3 rounds", "timeouts": "1 round"},
    machines={
        "events": {"processor": "slow, 2 cores", "attrs": "26.1.0"},
        "connect": {"processor": "fast, 2 cores", "attrs": "26.1.0"},
        "timeouts": {"processor": "slow, 2 cores", "attrs": "26.1.0"},
    },
    rounds={
        "events": {
            "ours": [{"per_second": 300.0}, {"per_second": 900.0}, {"per_second": 500.0}],
            "ref": [{"per_second": 100.0}, {"per_second": 300.0}, {"per_second": 250.0}],
            "client-js": [{"failed": "it broke"}] * 3,
            "raw": [{"cannot": "it is too simple"}] * 3,
        },
        "connect": {"ours": [{"close_ms": 1.5}], "client-js": [{"failed": "it broke"}]},
        "timeouts": {"ours": [{"request_ms": 1.5}, {"failed": "too soon"}, {"failed": "too soon"}]},
    },
    pythons={"3.10": {"events": {"ours": [{"per_second": 4000.0}], "ref": [{"per_second": 1000.0}]}}, "3.9": {}},
    parts={"codec": 5e-7},
    mouth_to_ear=[
        {"name": "wire to speaker", "sounds": 7, "p50": 0.001, "p99": 0.002},
        {"name": "the devices alone", "sounds": 5, "p50": 0.1, "p99": 0.2},
    ],
    lacking={"mouth to ear": "there is no daemon"},
)


def test_the_page_is_what_the_results_give() -> None:
    """The generated parts of docs/performance.md come from docs/performance/results.json."""
    text = (DOCS / "performance.md").read_text(encoding="utf-8")

    assert report.page(text, Results.load(DOCS / "performance" / "results.json")) == text


def test_each_measurement_names_its_machine() -> None:
    """A measurement is of one machine, with all its peers; if there are several machines, the table says which."""
    assert report.part("machines", RESULTS).splitlines()[2:] == [
        "| attrs | 26.1.0 |",
        "| processor | slow, 2 cores; fast, 2 cores |",
        "| 1 round, machine 1 | timeouts |",
        "| 3 rounds, machine 1 | events |",
        "| 3 rounds, machine 2 | connect |",
    ]


def test_a_ratio_is_the_median_of_those_of_the_rounds() -> None:
    """What disturbs one round disturbs its ratio alone: 3, 3 and 2 give 3, where the medians would give 2."""
    row = next(line for line in report.part("session-ratios", RESULTS).splitlines() if line.startswith("| events"))

    assert row == "| events a second | 3.00 |"


def test_figures_are_medians() -> None:
    """The table of figures has the median of each peer, and a dash where there is none."""
    table = report.part("session-figures", RESULTS).splitlines()

    assert table[0] == "| median | ours | ref |"
    assert "| events a second | 500 | 250 |" in table
    assert "| close, ms | 1.50 | - |" in table
    assert "| request p50, µs | - | - |" in table


def test_targets_are_judged() -> None:
    """A target is met, or missed by so much of it, or was not measured."""
    lines = report.part("targets", RESULTS).splitlines()

    assert "| events a second | ≥ 2.5 x ref | 3.00 | met |" in lines
    assert "| close, ms | ≤ 1 | 1.50 | missed by 50% |" in lines
    assert "| request p50 | ≤ 0.95 x ref | - | not measured |" in lines
    assert "| a request is given up late by, ms | ≤ 2 | 1.50 | met, 2 of 3 rounds failed |" in lines


@pytest.mark.parametrize(
    ("limits", "value", "judgement"),
    [
        ({"least": 2.0}, 2.0, "met"),
        ({"least": 2.0}, 1.5, "missed by 25%"),
        ({"most": 2.0}, 2.0, "met"),
        ({"most": 2.0}, 3.0, "missed by 50%"),
        ({"most": 2.0}, -3.0, "met"),
        ({"most": 2.0, "signed": True}, -3.0, "missed by 50%"),
        ({"most": 2.0, "signed": True}, -2.0, "met"),
    ],
)
def test_a_limit_itself_is_enough(limits: dict[str, Any], value: float, judgement: str) -> None:
    """The limit is met by the limit, and what misses it is told as a share of it; a signed figure to either side."""
    assert Target(words="", scenario="", figure="", **limits).judge(value) == judgement


def test_the_worst_round_is_judged() -> None:
    """Where every round has to meet a target, the median would hide the one that has not."""
    least = Target(words="", scenario="", figure="", least=2.0, every_round=True)
    most = Target(words="", scenario="", figure="", most=2.0, every_round=True)
    assert (least.figure_of([3.0, 1.0, 4.0]), most.figure_of([3.0, 1.0, 4.0])) == (1.0, 4.0)
    assert least.wanted == "≥ 2 in every round"


def test_other_parts_of_the_page() -> None:
    """Versions of Python in their order, nanoseconds, milliseconds, and the reasons for what is not there."""
    assert report.part("pythons", RESULTS).splitlines()[0] == "| median (x ref) |  | 3.9 | 3.10 |"
    assert "| events a second | ours | - (-) | 4,000 (4.00) |" in report.part("pythons", RESULTS).splitlines()
    assert "| codec | 500 |" in report.part("parts", RESULTS)
    assert "| wire to speaker | 7 | 1.0 | 2.0 | 1.0% |" in report.part("mouth-to-ear", RESULTS)
    assert report.part("gaps", RESULTS) == (
        "- mouth to ear: there is no daemon\n"
        "- client-js, events, connect: it broke\n"
        "- raw, events: it is too simple\n"
        "- ours, timeouts (2 of 3 rounds): too soon\n"
    )


def test_what_stands_around_the_marks_stays() -> None:
    """The text between two marks changes, the rest stays, and a second run changes nothing."""
    text = "before\n<!-- begin parts -->\nold\n<!-- end parts -->\nafter\n"

    made = report.page(text, RESULTS)

    assert made.startswith("before\n<!-- begin parts -->\n|  | ns |\n")
    assert made.endswith("<!-- end parts -->\nafter\n")
    assert report.page(made, RESULTS) == made


def test_results_are_kept_as_they_are(tmp_path: Path) -> None:
    """What is saved is loaded again; without a file there is nothing."""
    RESULTS.save(tmp_path / "new" / "results.json")

    assert Results.load(tmp_path / "new" / "results.json") == RESULTS
    assert Results.load(tmp_path / "none.json") == Results()


def test_pictures_of_the_same_figures_are_the_same_files(tmp_path: Path) -> None:
    """Drawn twice, every picture has the same bytes, and names the peers that it shows."""
    for name in ("one", "two"):
        plots.draw(RESULTS, tmp_path / name)
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two"))

    assert one == two
    assert set(one) == {f"{name}.svg" for name in plots.PLOTS}
    assert b">ours<" in one["throughput.svg"]
