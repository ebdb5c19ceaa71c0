"""Show an index of vectors in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.distance import MEANING
from irli.base.html import render_html
from irli.vectors.tune_result import TuneResult


def show_index(
    title: str,
    stats: Mapping[str, Any],
    tuned: TuneResult | None,
    loads: NDArray[np.int64],
    **more: object,
) -> str:
    """Return HTML that shows the sizes of an index, how well it finds, and its loads.

    Parameters
    ----------
    stats : mapping
        As `stats()` of the index returns them.
    loads : int array of shape (B,)
        How many items each bucket holds.
    **more
        Other facts, by name.
    """
    metric, buckets = stats["metric"], stats["buckets"]
    learned = buckets > 1
    facts: dict[str, object] = {
        "metric": f"{metric}: {MEANING[metric]}",
        "items": f"{stats['items']:,} of {stats['dim']:,} dimensions",
        "buckets": f"{stats['repetitions']} x {buckets:,}" if learned else "none",
        "recipe": stats["recipe"]["name"],
    }
    if not learned:
        facts["search"] = "compares all items, so it is exact"
    elif tuned is not None:
        missed = "" if tuned.reached else ", less than was asked for"
        facts["tuned recall"] = f"{tuned.recall:.3f} at k = {tuned.k}{missed}"
        facts["work"] = f"{tuned.scanned:,.0f} of {stats['entries']:,} entries read for a query"
    whole, vectors = (_format_size(stats[name]) for name in ("bytes", "bytes_vectors"))
    facts["memory"] = f"{whole}, {vectors} of it vectors"
    return render_html(title, facts | more, loads if learned else None)


def _format_size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.1f} kB"
