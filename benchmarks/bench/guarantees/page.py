"""Write the measured table into docs/guarantees.md, between two marks."""

from __future__ import annotations

from typing import Any

from bench.common import REPOSITORY, format_table, say

PAGE = REPOSITORY / "docs" / "guarantees.md"
_BEGIN, _END = "<!-- figures -->", "<!-- end of figures -->"
_HEAD = [
    "shape",
    "d",
    "recall, k = 1",
    "10",
    "100",
    "1000",
    "worst k",
    "self-hits",
    "worst filter",
    "between",
    "noise",
    "far",
]


def write_report(found: dict[str, Any]) -> str:
    """Print the worst figures, and return them with the table of all shapes."""
    say(_summarize(found))
    table = format_table(_HEAD, [_list_row(name, found[name]) for name in found])
    return "\n".join([_summarize(found), "", *table, ""])


def replace_figures(text: str) -> None:
    """Replace the figures of the page."""
    before, rest = PAGE.read_text().split(_BEGIN)
    PAGE.write_text(f"{before}{_BEGIN}\n\n{text}\n{_END}{rest.split(_END)[1]}")


def _list_row(name: str, shape: dict[str, Any]) -> list[str]:
    seen = shape["learned"]
    recall = {int(k): share for k, share in seen["recall"].items()}
    filters = seen["filters"]
    worst = min(filters, key=filters.__getitem__)
    return [
        f"{name} ({shape['metric']})",
        str(shape["dim"]),
        *(_show(recall[k]) if k in recall else "" for k in (1, 10, 100, 1000)),
        _show(min(recall.values())),
        "" if shape["metric"] == "ip" else f"{seen['self_hits']:.4f}",
        f"{_show(filters[worst])} ({worst})",
        *(f"{_show(share)} at {times:.1f} x" for share, times in seen["strange"].values()),
    ]


def _show(share: float) -> str:
    return f"{share:.3f}".lstrip("0") if share < 1 else "1"


def _summarize(found: dict[str, Any]) -> str:
    """Return the worst figures in one paragraph."""
    seen = {name: shape["learned"] for name, shape in found.items()}
    items = next(iter(found.values()))["items"]
    recalls = {name: min(each["recall"].values()) for name, each in seen.items()}
    tens = {name: each["recall"]["10"] for name, each in seen.items()}
    hits = {name: each["self_hits"] for name, each in seen.items()}
    filters = {name: min(each["filters"].values()) for name, each in seen.items()}
    floors = {name: min(s for s, _ in each["strange"].values()) for name, each in seen.items()}
    works = {name: max(w for _, w in each["strange"].values()) for name, each in seen.items()}

    def worst(figures: dict[str, float], choose: Any = min) -> str:
        name = choose(figures, key=figures.__getitem__)
        return f"{figures[name]:.4g} ({name})"

    low = sum(share < 0.85 for share in floors.values())
    return (
        f"{len(found)} shapes of {items:,} items, learned with the default recipe and tuned to "
        f"recall .95. The worst recall10@10 of ordinary queries is {worst(tens)}, the worst at any "
        f"k from 1 to 1,000 {worst(recalls)}. The fewest self-hits are {worst(hits)}. The worst "
        f"filtered recall10@10 is {worst(filters)}. The worst recall of strange queries is "
        f"{worst(floors)}; it is below .85 for {low} of the shapes. The most work for them is "
        f"{worst(works, max)} times that of an ordinary query."
    )
