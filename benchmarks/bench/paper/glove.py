"""The paper's recipe on many GloVe vectors, with all its repetitions: hours, in one seed.

It shows which K and how many epochs the recipe needs, then learns R = 32 repetitions and draws
recall against candidates by votes, beside the baselines on the same vectors. Each epoch is kept as
soon as it is learned, so a run that is stopped goes on where it was.
"""

from __future__ import annotations

import dataclasses

from bench.commands import Options
from bench.paper.candidates import AT, PAPER, SIZES, SMOKE, Curves, compare
from bench.paper.part import VERDICTS, Claim

SMALL = dataclasses.replace(
    SIZES["small"],
    items=100_000,
    hidden=(512,),
    paper={"repetitions": 32, "buckets": 1024, "hidden": 512},
    tried=(
        {"choices": 10, "epochs": 30, "learning_rate": 0.001},
        {"choices": 10, "epochs": 60, "learning_rate": 0.001},
        {"choices": 10, "epochs": 30, "learning_rate": 0.005},
        {"choices": 25, "epochs": 30, "learning_rate": 0.005},
        {"choices": 10, "epochs": 60, "learning_rate": 0.005},
    ),
    few=4,
)


def glove(options: Options) -> None:
    """Try K and epochs with few repetitions, then learn all of them and draw the curves."""
    size = SMOKE if options.smoke else {**SIZES, "small": SMALL}[options.scale]
    compare(options, "glove", size, [0], lambda curves: [_answer_reached(curves)])


def _answer_reached(curves: Curves) -> Claim:
    """Say at what cost the paper's recipe reaches the recall by votes."""
    [points] = curves[PAPER]
    reached = [point for point in points if point["recall"] >= AT]
    if reached:
        best = min(reached, key=lambda point: point["candidates"])
        ours = (
            f"{best['recall']:.3f} with m = {best['probes']}, at least {best['min_votes']} votes "
            f"and {best['candidates']:.0f} candidates"
        )
    else:
        ours = f"at most {max(point['recall'] for point in points):.3f}"
    return Claim(
        f"The paper's recipe reaches recall10@10 of {AT:.2f} by votes",
        "yes, on GloVe-100",
        f"{ours} (one seed)",
        VERDICTS[0] if reached else VERDICTS[2],
        "make paper-glove",
    )
