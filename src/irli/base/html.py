"""Show an index in a notebook: a table of facts, and the loads of its buckets as bars."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import numpy as np
from numpy.typing import NDArray

_BARS, _WIDTH, _HEIGHT = 80, 320, 48  # bars at most; pixels


def render_html(
    title: str, facts: Mapping[str, object], loads: NDArray[np.int64] | None = None
) -> str:
    """Return HTML that needs no script and no style sheet. All text is escaped.

    Parameters
    ----------
    facts : mapping from a name to a value
    loads : int array of shape (B,), optional
        How many items each bucket holds.

    Examples
    --------
    >>> "<th" in render_html("LabelIndex", {"labels": 3}, np.array([1, 2]))
    True
    >>> "<script>" in render_html("<script>", {"<script>": "<script>"})
    False
    """
    cell = "text-align:left;padding:1px 12px 1px 0;vertical-align:top"
    rows = "".join(
        f'<tr><th style="{cell}">{escape(name)}</th>'
        f'<td style="{cell}">{escape(str(value))}</td></tr>'
        for name, value in facts.items()
    )
    bars = "" if loads is None or len(loads) == 0 else _draw_loads(loads)
    return f"<div><strong>{escape(title)}</strong><table>{rows}</table>{bars}</div>"


def _draw_loads(loads: NDArray[np.int64]) -> str:
    """Return an SVG with the loads as bars, largest first. Many buckets share a bar."""
    ordered = np.sort(loads)[::-1]
    means = [float(part.mean()) for part in np.array_split(ordered, min(_BARS, len(ordered)))]
    step, most = _WIDTH / len(means), max(1.0, means[0])
    bars = "".join(
        f'<rect x="{place * step:.1f}" y="{_HEIGHT * (1 - mean / most):.1f}" '
        f'width="{max(step - 0.5, 0.5):.1f}" height="{_HEIGHT * mean / most:.1f}"/>'
        for place, mean in enumerate(means)
    )
    said = f"{len(loads)} buckets hold {int(ordered[-1])} to {int(ordered[0])} items"
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" fill="#4878a8" role="img">'
        f"<title>{said}</title>{bars}</svg><br><small>{said}</small>"
    )
