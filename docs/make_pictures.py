"""Draw the pictures of the docs: `python docs/make_pictures.py` writes docs/pictures/*.svg.

Each picture is a plain SVG with its own background. It follows the reader's light or dark mode.
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

FOLDER = Path(__file__).parent / "pictures"

# name: (light, dark)
COLOURS = {
    "card": ("#ffffff", "#171b26"),
    "edge": ("#d7dce5", "#3a4254"),
    "panel": ("#f4f6fa", "#222838"),
    "ink": ("#1d2433", "#edf0f7"),
    "soft": ("#5b6579", "#a9b3c7"),
    "learn": ("#5b4bc4", "#a79bff"),
    "search": ("#c2410c", "#ff9d66"),
    "red": ("#d64550", "#f0757e"),
    "blue": ("#2f7fd1", "#62aaf5"),
    "green": ("#2f9461", "#5cc793"),
}
KINDS = ("red", "blue", "green")  # items that belong together have one colour
FONT = "Inter, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"


# --- drawing -----------------------------------------------------------------------------------


def style() -> str:
    """Return the style sheet: a class for each colour, once as fill and once as stroke."""

    def rules(mode: int) -> str:
        return "".join(
            f".{name}{{fill:{pair[mode]}}}.{name}-line{{stroke:{pair[mode]}}}"
            for name, pair in COLOURS.items()
        )

    return (
        f"<style>text{{font-family:{FONT}}}{rules(0)}"
        f"@media (prefers-color-scheme:dark){{{rules(1)}}}</style>"
    )


def picture(width: int, height: int, title: str, parts: list[str]) -> str:
    arrows = "".join(
        f'<marker id="{name}" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="6.5" '
        f'markerHeight="6.5" orient="auto-start-reverse"><path class="{name}" '
        f'd="M0 0.5 L10 5 L0 9.5 z"/></marker>'
        for name in ("soft", "learn", "search")
    )
    body = "\n".join(parts)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>{title}</title>
{style()}
<defs>{arrows}</defs>
{box(1, 1, width - 2, height - 2, "card", radius=14)}
{body}
</svg>
"""


def box(
    x: float, y: float, width: float, height: float, fill: str = "panel", radius: float = 9
) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" '
        f'class="{fill} edge-line"/>'
    )


def bar(x: float, y: float, width: float, height: float, fill: str, opacity: float = 1) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="2" '
        f'class="{fill}" opacity="{opacity:g}"/>'
    )


def dot(x: float, y: float, fill: str, radius: float = 6, opacity: float = 1) -> str:
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" class="{fill}" opacity="{opacity:g}"/>'


def text(
    x: float, y: float, words: str, *, fill: str = "ink", size: int = 14, bold: bool = False,
    anchor: str = "middle",
) -> str:  # fmt: skip
    """Write lines of text; the first one stands at y."""
    weight = ' font-weight="600"' if bold else ""
    lines = "".join(
        f'<tspan x="{x:g}" y="{y + i * size * 1.35:g}">{line}</tspan>'
        for i, line in enumerate(words.split("\n"))
    )
    return f'<text class="{fill}" font-size="{size}" text-anchor="{anchor}"{weight}>{lines}</text>'


def number(x: float, y: float, value: str, fill: str) -> str:
    """A step's number in a disc."""
    return dot(x, y, fill, 11) + text(x, y + 4.6, value, fill="card", size=13, bold=True)


def line(path: str, stroke: str = "soft", *, width: float = 2, head: bool = True) -> str:
    end = f' marker-end="url(#{stroke})"' if head else ""
    return f'<path d="{path}" fill="none" class="{stroke}-line" stroke-width="{width:g}"{end}/>'


def buckets(
    x: float, y: float, held: list[str], *, lit: tuple[int, ...] = (), width: float = 30
) -> list[str]:
    """Draw buckets as columns of items: one string of r, g and b for each, from the bottom up."""
    height, parts = 112, []
    colour = {kind[0]: kind for kind in KINDS}
    for i, items in enumerate(held):
        left = x + i * (width + 5)
        parts.append(box(left, y, width, height, "card", 5))
        if i in lit:
            parts.append(
                f'<rect x="{left:g}" y="{y:g}" width="{width:g}" height="{height}" rx="5" '
                'fill="none" class="search-line" stroke-width="2.5"/>'
            )
        for j, item in enumerate(items):
            faint = 1 if not lit or i in lit else 0.35
            parts.append(dot(left + width / 2, y + height - 13 - 18 * j, colour[item], 6.5, faint))
    return parts


def network(x: float, y: float, width: float = 90) -> list[str]:
    """Draw a small router, 96 high, and the probabilities of five buckets to its right."""
    layers = [(x + 5, 3), (x + width / 2, 4), (x + width - 5, 5)]
    places = [
        [(left, y + 48 + (i - (count - 1) / 2) * 20) for i in range(count)]
        for left, count in layers
    ]
    wires = [
        f"M{a[0]:g} {a[1]:g} L{b[0]:g} {b[1]:g}"
        for first, second in pairwise(places)
        for a in first
        for b in second
    ]
    parts = [f'<path d="{" ".join(wires)}" class="learn-line" stroke-width="0.8" opacity="0.45"/>']
    parts += [dot(*place, "learn", 5) for layer in places for place in layer]
    for i, (long, shade) in enumerate([(0.2, 0.3), (1, 1), (0.15, 0.3), (0.75, 1), (0.12, 0.3)]):
        parts.append(bar(x + width + 7, y + 1 + 20 * i, 32 * long, 14, "learn", shade))
    return parts


def scores(x: float, y: float, heights: list[float], lit: tuple[int, ...], fill: str) -> list[str]:
    """Draw the scores of five buckets as bars on a line, 60 high at most."""
    parts = [
        bar(x + 35 * i + 5, y + 60 - 60 * h, 20, 60 * h, fill, 1 if i in lit else 0.3)
        for i, h in enumerate(heights)
    ]
    return [*parts, line(f"M{x - 2:g} {y + 60:g} h174", "edge", width=2, head=False)]


# --- the pictures ------------------------------------------------------------------------------


def learning() -> str:
    """Algorithm 1."""
    parts = [
        text(28, 38, "Learning: train and re-partition in turn", size=19, bold=True, anchor="start")
    ]
    lefts = (24, 264, 504, 744)
    heads = ("Initial partition", "Train the router", "Affinity of each item", "Re-partition")
    notes = (
        "k-means with a bound on the\nsize of a bucket (the paper:\na random hash)",
        "from queries and what they\nwant: which buckets hold\na relevant item?",
        "each bucket’s probability\nto be probed for the item\nand for queries that want it",
        "each item goes to its best\nbucket that has room; none\nholds more than the bound",
    )
    for i, (left, head, note) in enumerate(zip(lefts, heads, notes, strict=True)):
        parts += [
            box(left, 62, 212, 262),
            number(left + 24, 88, str(i + 1), "learn"),
            text(left + 42, 93, head, size=15, bold=True, anchor="start"),
            text(left + 106, 272, note, fill="soft", size=13),
        ]
    parts += buckets(45, 122, ["rgb", "brg", "gbrb", "gr", "rbg"])
    parts += [dot(291, 178, "search", 9), text(291, 206, "query", fill="search", size=12)]
    parts += [line("M304 178 H322"), *network(328, 130)]
    parts += [
        dot(532, 132, "red", 8),
        text(546, 137, "an item", fill="red", size=13, anchor="start"),
    ]
    parts += scores(524, 152, [0.25, 0.9, 0.12, 0.65, 0.2], (1, 3), "learn")
    parts += [text(539 + 35 * i, 231, str(i + 1), fill="soft", size=12) for i in range(5)]
    parts += buckets(765, 122, ["rrrr", "rr", "gggg", "bbbbb", "g"])
    parts += [
        '<path d="M759 134 H946" class="soft-line" stroke-width="1.5" stroke-dasharray="4 4"/>',
        dot(920, 203, "red", 6.5, 0.3),
        dot(815, 185, "red", 6.5),
        line("M916 193 C900 142 842 142 822 174", "learn", width=1.8),
    ]
    parts += [line(f"M{left + 216} 190 h18", width=2.5) for left in lefts[:3]]
    parts += [
        line("M850 328 v34 q0 12 -12 12 H382 q-12 0 -12 -12 V332", "learn", width=2.5),
        box(466, 356, 288, 36, "card", 18),
        text(610, 379, "repeat until few items move", fill="learn", bold=True),
        text(
            490,
            424,
            "Each repetition has a router and a partition of its own: 1 by default, "
            "4 heads on one trunk for labels, 32 in the paper.",
            fill="soft",
            size=13,
        ),
    ]
    return picture(980, 446, "Learning an index: Algorithm 1", parts)


def searching() -> str:
    """Algorithm 2."""
    parts = [
        text(28, 38, "Searching: from a query to the k best", size=19, bold=True, anchor="start")
    ]
    lefts, width = (24, 216, 408, 600, 792), 164
    heads = ("Route", "Probe", "Scan", "Rerank", "Answer")
    counts = ("all B buckets", "a few buckets", "their entries", "the candidates", "k answers")
    notes = (
        "The router gives each\nbucket a probability\nfor this query.",
        "Buckets above the\nthreshold, or the m best\nof each repetition.",
        "4-bit codes or votes say\nwhich entries may be\nnear: the candidates.",
        "Exact distances put the\ncandidates in order; for\nlabels, the ranker’s scores.",
        "The k nearest items\nor the k best labels,\nbest first.",
    )
    for i, left in enumerate(lefts):
        middle = left + width / 2
        parts += [
            box(left, 62, width, 272),
            number(left + 22, 86, str(i + 1), "search"),
            text(left + 40, 91, heads[i], size=15, bold=True, anchor="start"),
            text(middle, 272, notes[i], fill="soft", size=12),
            text(middle, 364, counts[i], fill="search", size=14, bold=True),
        ]
    parts += [line(f"M{left + width + 4} 178 h20", width=2.5) for left in lefts[:4]]
    parts += [dot(43, 178, "search", 8), text(46, 204, "query", fill="search", size=12)]
    parts += [line("M54 178 H66"), *network(72, 130, 70)]
    parts += buckets(228, 122, ["rrrr", "rr", "gggg", "bbbbb", "g"], lit=(1, 3), width=24)
    parts += _codes(424, 122)
    parts += _ranking(616, 124)
    for i, (kind, name) in enumerate((("red", "17"), ("blue", "4"), ("red", "31"))):
        y = 140 + 34 * i
        parts += [
            text(824, y + 5, f"{i + 1}.", fill="soft", size=14),
            dot(848, y, kind, 9),
            text(866, y + 5, f"item {name}", size=14, anchor="start"),
        ]
    parts += [
        line("M106 384 H874", "search", width=2),
        text(
            490,
            410,
            "Each step looks at less than the one before, and looks closer.",
            fill="soft",
            size=13,
        ),
    ]
    return picture(980, 430, "Searching an index: Algorithm 2", parts)


def _codes(x: float, y: float) -> list[str]:
    """Seven entries with their codes; three are candidates."""
    parts = []
    for row, kind in enumerate(("red", "red", "blue", "blue", "blue", "blue", "blue")):
        top = y + 16 * row
        good = row in (0, 1, 3)
        parts.append(dot(x + 6, top + 7, kind, 5.5, 1 if good else 0.35))
        for piece in range(8):
            shade = 0.25 + 0.75 * (math.sin(7 * row + 3 * piece) ** 2)
            parts.append(
                bar(x + 20 + 11 * piece, top + 1, 9, 12, kind, shade * (1 if good else 0.35))
            )
        if good:
            parts.append(line(f"M{x + 112:g} {top + 7:g} h20", "search", width=2))
    return parts


def _ranking(x: float, y: float) -> list[str]:
    """Three candidates with exact distances as lines, the shortest first."""
    parts = [dot(x + 10, y + 54, "search", 8)]
    for top, length, kind in ((8, 74, "red"), (54, 92, "blue"), (100, 122, "red")):
        end = x + 10 + length
        parts += [
            line(f"M{x + 10:g} {y + 54:g} L{end:g} {y + top:g}", "soft", width=1.6, head=False),
            dot(end, y + top, kind, 8),
        ]
    return [*parts, dot(x + 10, y + 54, "search", 8)]


ROOMS = (
    ("cli | integrations", "commands; a backend for Annif"),
    ("cluster", "shards on many machines (Ray)"),
    ("vectors | labels", "the two kinds of index"),
    ("learning", "Algorithm 1"),
    ("engine", "every compiled loop: Algorithm 2"),
    ("base", "checks, recipe, threads, the folder"),
)


def rooms() -> str:
    """The packages, and the two ways through them."""
    top, height, gap = 92, 62, 8
    middle = {}
    parts = [text(28, 38, "The rooms of irli", size=19, bold=True, anchor="start")]
    parts.append(
        text(28, 64, "Each imports only from those below it.", fill="soft", size=13, anchor="start")
    )
    for i, (name, what) in enumerate(ROOMS):
        y = top + i * (height + gap)
        middle[name] = y + height / 2
        parts += [
            box(24, y, 932, height),
            text(42, y + 27, name, size=16, bold=True, anchor="start"),
            text(42, y + 47, what, fill="soft", size=12, anchor="start"),
        ]
    index, learn = middle["vectors | labels"], middle["learning"]
    engine = middle["engine"]
    parts += [
        text(340, 64, "fit", fill="learn", size=16, bold=True),
        line(f"M340 74 V{index - 18:g}", "learn"),
        line(f"M400 {index + 17:g} V{learn - 18:g}", "learn"),
        line(f"M458 {learn - 17:g} V{index:g} H480", "learn"),
        line(f"M426 {learn + 17:g} V{engine - 18:g}", "learn", width=1.4),
        line(f"M636 {index + 17:g} V{engine - 18:g}", "learn", width=1.4),
        line(f"M588 {index:g} H596", "learn"),
        *_stop(376, index, "1", "make_problem", "learn"),
        *_stop(430, learn, "2", "learn", "learn"),
        *_stop(534, index, "3", "assemble", "learn"),
        *_stop(636, index, "4", "tune", "learn"),
        *_stop(426, engine, "", "neighbours, affinity, placement", "learn"),
        *_stop(636, engine, "", "searches", "learn"),
        text(752, 64, "search, predict", fill="search", size=16, bold=True),
        line(f"M752 74 V{index - 18:g}", "search"),
        line(f"M752 {index + 17:g} V{engine - 18:g}", "search"),
        line(f"M890 {engine - 17:g} V{index + 18:g}", "search"),
        *_stop(752, index, "1", "check", "search"),
        *_stop(820, engine, "2", "route, probe, scan, rerank", "search"),
        *_stop(890, index, "3", "answer", "search"),
    ]
    return picture(980, 524, "The rooms of irli and the two ways through them", parts)


def _stop(x: float, y: float, step: str, name: str, fill: str) -> list[str]:
    """Draw a stop on a way; one without a number is a helper of the step that leads to it."""
    if not step:
        width = 20 + 6.3 * len(name)
        return [
            box(x - width / 2, y - 14, width, 28, "card", 14),
            text(x, y + 4.4, name, fill="soft", size=12),
        ]
    width = 42 + sum(4 if letter in "il,. " else 11.5 if letter in "mw" else 7.6 for letter in name)
    left = x - width / 2
    return [
        box(left, y - 16, width, 32, "card", 16),
        number(left + 16, y, step, fill),
        text(left + 31, y + 4.6, name, size=13, bold=True, anchor="start"),
    ]


# --- labels, beside the best of the others -------------------------------------------------------

METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")


def labels() -> str:
    """The differences of the table of the page on performance, with their standard errors."""
    title = "How far irli is above the best of the others, in points"
    parts = [text(28, 38, title, size=19, bold=True, anchor="start")]
    for j, metric in enumerate(METRICS):
        parts.append(text(84, 111 + 26 * j, metric, size=13, anchor="end"))
    for i, (data, differences) in enumerate(read_differences()):
        left, scale = 110 + 216 * i, 52  # of nothing, and of a point
        parts.append(box(left - 12, 84, 208, 172))
        parts.append(text(left + 92, 74, data, size=14, bold=True))
        for points in range(4):
            x = left + points * scale
            parts.append(line(f"M{x:g} 90 V250", "soft" if points == 0 else "edge", head=False))
            parts.append(text(x, 276, f"+{points}" if points else "0", fill="soft", size=12))
        for j, (difference, error) in enumerate(differences):
            x, y = left + difference * scale, 106.5 + 26 * j
            reach = error * scale
            parts.append(line(f"M{x - reach:g} {y:g} H{x + reach:g}", "learn", head=False))
            parts.append(dot(x, y, "learn", 5))
    return picture(980, 296, title, parts)


def read_differences() -> list[tuple[str, list[tuple[float, float]]]]:
    """Return each data set of the table with (difference, standard error) by each metric."""
    page = (FOLDER.parent / "explanation" / "performance.md").read_text(encoding="utf-8")
    head = f"| data | {' | '.join(METRICS)} |\n"
    rows = page.split(head)[1].split("\n\n")[0].splitlines()[1:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return [
        (name, [(float(a), float(b)) for a, b in (cell.split(" ± ") for cell in differences)])
        for name, *differences in cells
    ]


# --- what an index promises ----------------------------------------------------------------------

RECALLS = ("k = 1", "k = 10", "k = 100", "k = 1,000", "worst k", "self-hits", "worst filter",
           "between two items", "noise", "far away")  # fmt: skip


def guarantees() -> str:
    """The recalls of the table of the page on promises: a dot for each shape."""
    title = "Recall on data of many shapes"
    width, left, low = 740, 170, 0.85  # of the panel, its left side, and the recall there
    parts = [
        text(28, 38, title, size=19, bold=True, anchor="start"),
        text(28, 62, "A dot for each shape.", fill="soft", size=13, anchor="start"),
        box(left - 14, 78, width + 40, 28 * len(RECALLS) + 4),
    ]
    bottom = 82 + 28 * len(RECALLS)
    for recall in (0.85, 0.9, 0.95, 1):
        x = left + (recall - low) / (1 - low) * width
        parts.append(line(f"M{x:g} 84 V{bottom - 6:g}", "edge", head=False))
        parts.append(text(x, bottom + 22, f"{recall:g}", fill="soft", size=12))
    for i, (name, values) in enumerate(zip(RECALLS, read_recalls(), strict=True)):
        kind = "search" if i > 6 else "learn"
        y = 96 + 28 * i
        parts.append(text(left - 26, y + 4.5, name, size=13, anchor="end"))
        parts += [dot(left + (v - low) / (1 - low) * width, y, kind, 5, 0.4) for v in values]
    parts.append(text(left - 26, bottom + 22, "orange: strange queries", fill="soft", size=12,
                      anchor="end"))  # fmt: skip
    return picture(980, int(bottom + 38), title, parts)


def read_recalls() -> list[list[float]]:
    """Return the values in each column of the table, without the work that follows them."""
    page = (FOLDER.parent / "guarantees.md").read_text(encoding="utf-8")
    table = page.split("| shape | d |")[1].split("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in row.strip("|").split("|")][2:] for row in table]
    return [
        [float(cell.split()[0]) for cell in column if cell] for column in zip(*rows, strict=True)
    ]


PICTURES = {
    "learning": learning,
    "searching": searching,
    "rooms": rooms,
    "labels": labels,
    "guarantees": guarantees,
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
