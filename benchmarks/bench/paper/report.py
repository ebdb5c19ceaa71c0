"""Collect the tables, plots and claims of all parts into docs/paper.md.

The page is written by hand, but for what lies between the lines `<!-- NAME -->` and
`<!-- end of NAME -->`: the results of a part, or all claims. A part without such lines gets a
section at the end.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

from bench.commands import Options
from bench.common import REPOSITORY, RESULTS, format_table, say
from bench.paper.part import VERDICTS, Claim

SCALES = ("small", "full")
# The order on the page; others follow by name.
PARTS = (
    "candidates",
    "sift",
    "local-features",
    "glove",
    "loads",
    "epochs",
    "affinity",
    "labels",
    "distributed",
    "ablations",
)
CLAIMS, TIMES = "claims", "times"


def report(options: Options) -> None:
    """Write docs/paper.md; for results elsewhere, a page beside them."""
    results = Path(options.results)
    docs = REPOSITORY / "docs" if results.resolve() == RESULTS else results / "docs"
    page = docs / "paper.md"
    (docs / "pictures").mkdir(parents=True, exist_ok=True)
    text = page.read_text(encoding="utf-8") if page.exists() else "# The paper\n"
    page.write_text(fill_page(text, results / "paper"), encoding="utf-8")
    for scale, name in list_parts(results / "paper"):
        drawn = results / "paper" / scale / f"{name}.png"
        if drawn.exists():
            shutil.copyfile(drawn, docs / "pictures" / _name_picture(scale, name))
    say(f"{page.name}: {_count_verdicts(read_claims(results / 'paper'))}")


def fill_page(text: str, folder: Path) -> str:
    """Return the page with the results of a folder. Text outside of the marked places is kept."""
    text = _fill(text, CLAIMS, "\n".join(_tabulate_claims(read_claims(folder))))
    text = _fill(text, TIMES, "\n".join(_tabulate_times(folder)))
    found: dict[str, list[str]] = {}
    for scale, name in list_parts(folder):
        found.setdefault(name, []).append(_show_part(folder, scale, name))
    for name, shown in found.items():
        text = _fill(text, name, "\n\n".join(shown))
    return text


def list_parts(folder: Path) -> list[tuple[str, str]]:
    """Return scale and name of all parts that have results, in order."""
    found = [(path.parent.name, path.name.removesuffix(".md")) for path in folder.glob("*/*.md")]
    order = [*PARTS, *sorted({name for _, name in found} - {*PARTS})]
    return [(scale, name) for name in order for scale in SCALES if (scale, name) in found]


def read_claims(folder: Path) -> list[Claim]:
    """Return the claims of all parts, in order."""
    claims = []
    for scale, name in list_parts(folder):
        path = folder / scale / f"{name}.claims.json"
        claims += [Claim(**each) for each in json.loads(path.read_text())]
    return claims


def _fill(text: str, name: str, content: str) -> str:
    """Put the content between the two lines of a place; make the place if there is none."""
    first, last = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if first not in text:
        text += f"\n## {name.capitalize()}\n\n{first}\n{last}\n"
    before, _, rest = text.partition(first)
    _, ends, after = rest.partition(last)
    if not ends:
        raise SystemExit(f"The page must have a line '{last}' after '{first}'. Add it.")
    return f"{before}{first}\n\n{content}\n\n{last}{after}"


def _tabulate_claims(claims: list[Claim]) -> list[str]:
    head = ["claim", "paper", "here", "verdict", "command"]
    rows = [
        [each.claim, each.paper, each.ours, f"**{each.verdict}**", f"`{each.command}`"]
        for each in claims
    ]
    escaped = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    return [_count_verdicts(claims), "", *format_table(head, escaped)]


def _count_verdicts(claims: list[Claim]) -> str:
    """Say how many claims have each verdict.

    Examples
    --------
    >>> _count_verdicts([Claim("", "", "", "holds", ""), Claim("", "", "", "holds in part", "")])
    'Of 2 claims, 1 hold, 1 hold in part, 0 do not hold here and 0 are planned, not measured.'
    """
    counts = Counter(claim.verdict for claim in claims)
    whole, part, none, planned = (counts[verdict] for verdict in VERDICTS)
    said = (
        f"{whole} hold, {part} hold in part, {none} do not hold here and {planned} are planned, "
        "not measured"
    )
    return f"Of {len(claims)} claims, {said}."


def _tabulate_times(folder: Path) -> list[str]:
    """Return the minutes of processor time that each part took, where all its cells were timed."""
    times = {}
    for scale, name in list_parts(folder):
        path = folder / scale / f"{name}.json"
        kept = json.loads(path.read_text()) if path.exists() else {"cells": {}}
        if kept["cells"] and kept["cells"].keys() == kept.get("cpu_seconds", {}).keys():
            times[name] = sum(kept["cpu_seconds"].values()) / 60
    rows = [[name, f"{minutes:.0f}"] for name, minutes in times.items()]
    return format_table(["part", "minutes of processor time"], rows)


def _show_part(folder: Path, scale: str, name: str) -> str:
    """Return the Markdown of a part and its plot."""
    text = (folder / scale / f"{name}.md").read_text(encoding="utf-8").strip()
    if scale != "small":
        text = f"At the scale `{scale}`: {text}"
    if (folder / scale / f"{name}.png").exists():
        text += f"\n\n![Plot of {name}](pictures/{_name_picture(scale, name)})"
    return text


def _name_picture(scale: str, name: str) -> str:
    return f"paper-{name}.png" if scale == "small" else f"paper-{name}-{scale}.png"
