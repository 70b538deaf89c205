"""Hand-made frames that several test files share."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import pandas as pd

from speclab import stats
from speclab.lab.texts import Text
from speclab.study.profiles import ROOT
from speclab.study.runs import Run, load_run


@cache
def shipped(pair, kind):
    """A shipped run of a pair, only to be read."""
    return load_run(ROOT / "data" / "traces" / pair / kind)


def with_lists(run, seed=0, ahead=16):
    """A run as if its draft were a head: made ranks and q of the next `ahead` tokens at every
    position, beside its own of the first, and other weights.
    """
    rng = np.random.default_rng(seed)
    trace = run.trace.sort_values(["prompt_id", "position"])
    left = trace.groupby("prompt_id")["position"].transform("size") - trace["position"]
    counts = left.clip(upper=ahead)
    columns = {
        "block_ranks": ("draft_rank", lambda count: rng.geometric(0.6, count) - 1),
        "block_q": ("q_token", rng.random),
    }
    for name, (own, made) in columns.items():
        lists = [[one, *made(count - 1)] for one, count in zip(trace[own], counts, strict=True)]
        kind = trace[own].dtype
        trace[name] = [np.array(values, kind) for values in lists]
    profile = run.manifest["profile"]
    profile = profile | {"draft": profile["draft"] | {"path": "made/head"}}
    weights = run.manifest["weights"] | {"draft": f"{seed:040d}"}
    made_run = Run(run.folder, run.manifest | {"profile": profile, "weights": weights})
    made_run.__dict__.update(trace=trace, nodes=run.nodes)
    return made_run


def frame_of(**domains):
    """Five prompts a domain, all with the same rows: domain = list of (group, x), so that every
    resample gives the sample's own means.
    """
    rows = [
        (f"{domain}-{i}", domain, group, x)
        for domain, values in domains.items()
        for i in range(5)
        for group, x in values
    ]
    return pd.DataFrame(rows, columns=["prompt_id", "domain", "group", "x"])


def pooled(frame, estimator, n=stats.RESAMPLES):
    """The number over all rows, with its interval over resampled prompts."""
    return stats.by_domain(frame, estimator, n).frame.set_index("domain").loc["pooled"]


def text_of(run, temperature=0.0):
    """The `Text` of a made run (.nodes, .trace) of so high a temperature."""
    profile = {"temperature": temperature, "seed": 0}
    return Text.of(SimpleNamespace(**vars(run), manifest={"profile": profile}))
