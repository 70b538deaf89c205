"""What the estimates of a run owe to the study's settings: texts cut earlier, short and long
prompts, the last block treated otherwise, each with its change against a base variant on the same
resamples of prompts.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from speclab import prompts, replay, runs, score, stats
from speclab.analysis.power import prompt_totals
from speclab.models import pairs
from speclab.profiles import Profile
from speclab.score import Estimator, member, require
from speclab.show.estimates import Estimates, stack
from speclab.stats import MIN_PROMPTS, RESAMPLES

THIRDS = ("short prompts", "middling prompts", "long prompts")
WHOLE, COUNTED = "all tokens", "counted"
BASES = (WHOLE, THIRDS[0], COUNTED)


def compare_variants(
    variants: Mapping[str, pd.DataFrame],
    estimator: Estimator,
    base: str,
    n: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """An estimator on variants of a run's rows: variant, domain (then `all`, `pooled`), estimate,
    low, high, change, change_low, change_high. The change is against the variant `base`, on the
    same resamples of prompts (all prompts that any variant holds).
    """
    sums = {}
    for name, frame in variants.items():
        ids, totals = prompt_totals(frame, estimator)
        sums[name] = pd.DataFrame(totals, pd.MultiIndex.from_frame(ids))
    wide = pd.concat(sums, axis=1).fillna(0.0).sort_index()
    ids = wide.index.to_frame(index=False)

    def value_and_change(totals: np.ndarray) -> np.ndarray:
        value, before = map(estimator.value, np.split(totals, 2, axis=-1))
        return np.concatenate([value, value - before], axis=-1)

    parts = {}
    for name in variants:
        both = wide[[name]].join(wide[[base]], rsuffix=" as the base").to_numpy()
        asked = Estimator("", lambda _, both=both: both, value_and_change, scalar=False)
        found = stats.by_domain(ids, asked, n, seed)
        found = found[["domain", "estimate", "low", "high"]]
        value, change = (found.iloc[m::2].reset_index(drop=True) for m in (0, 1))
        names = ["change", "change_low", "change_high"]
        parts[name] = value.join(change.drop(columns="domain").set_axis(names, axis=1))
    return stack(parts, "variant")


def cut_texts(frame: pd.DataFrame, limits: Sequence[int]) -> dict[str, pd.DataFrame]:
    """The rows of a run with fewer new tokens, exactly as a run of that `max_new_tokens` would have
    them (a text's beginning does not depend on its limit): '8 tokens', …, and the whole as WHOLE.
    For `trace` and `nodes`; blocks must be replayed after the cut.
    """
    if not limits or min(limits) < 1:
        raise ValueError(
            f"limits={list(limits)}: give numbers of new tokens, 1 or more"
        )
    cut = {
        f"{limit} tokens": frame[frame["position"] < limit] for limit in sorted(limits)
    }
    return cut | {WHOLE: frame}


def by_length(
    frame: pd.DataFrame, lengths: Mapping[str, float]
) -> dict[str, pd.DataFrame]:
    """The rows of each third of a domain's prompts by length (THIRDS; ties in the order of the
    ids), `lengths` by prompt_id, 15 prompts a domain or more.

    ValueError: the prompts of a domain are all equally long.
    """
    ids = (
        frame[["prompt_id", "domain"]]
        .astype(str)
        .drop_duplicates()
        .sort_values("prompt_id")
    )
    ids["length"] = ids["prompt_id"].map(dict(lengths))
    groups = ids.groupby("domain")["length"]
    assert ids["length"].notna().all() and groups.size().min() >= 3 * MIN_PROMPTS
    for domain, different in groups.nunique().items():
        if different == 1:
            raise ValueError(
                f"the prompts of {domain!r} are all of one length (constant): "
                "its effect is undefined"
            )
    ids["third"] = 3 * (groups.rank(method="first") - 1) // groups.transform("size")
    third = frame["prompt_id"].astype(str).map(ids.set_index("prompt_id")["third"])
    return {name: frame[third == number] for number, name in enumerate(THIRDS)}


def text_ends(
    trace: pd.DataFrame, shape, max_new_tokens: int, nodes: pd.DataFrame | None = None
) -> dict[str, pd.DataFrame]:
    """Per-prompt sums of the visited blocks (`replay.prompt_sums`) under each treatment of the
    blocks that a text's end cut.

    COUNTED: as a decoder counts. 'left out'. 'extended, least' and 'extended, most': bounds, where
    the text was cut at `max_new_tokens` (not by its EOS), as if it went on and the next token were
    rejected, or all of the shape's depth accepted. 'extended': exactly, from the `nodes` of a T = 0
    run of the same shape, which look past the end. Estimators: `score.block_estimators`.
    """
    blocks = replay.replay(trace, shape)
    length = blocks["start"] + blocks["remaining"]
    cut = blocks["truncated"] & (length >= max_new_tokens)
    depth = sum(str(name).startswith("survival_") for name in blocks)
    accepted = {"extended, least": blocks["accepted"], "extended, most": depth}
    if nodes is not None:
        tree = ["prompt_id", "position"]
        walked = (
            nodes[tree].assign(walked=score.reach(nodes)).groupby(tree)["walked"].sum()
        )
        accepted["extended"] = blocks.join(walked, on=["prompt_id", "start"])["walked"]
    result = {
        COUNTED: replay.prompt_sums(blocks),
        "left out": replay.prompt_sums(blocks, "untruncated"),
    }
    for name, more in accepted.items():
        extended = blocks.assign(
            accepted=blocks["accepted"].mask(cut, more),
            emitted=blocks["emitted"].mask(cut, more + 1),
            truncated=blocks["truncated"] & ~cut,
        )
        result[name] = replay.prompt_sums(extended)
    return result


def sensitivity(
    run,
    lengths: Mapping[str, float] | None,
    shape,
    max_new_tokens: int,
    limits: Sequence[int] = (8, 16, 32),
    gamma: int = 4,
) -> pd.DataFrame:
    """What the estimates of a T = 0 run owe to its settings: setting, estimator, then the columns
    of `compare_variants`.

    Settings: `new tokens` (texts cut at `limits`, against the whole), `prompt length` (thirds of
    each domain by `lengths`, against the short ones; lengths None: left out), `last block`
    (`text_ends` of the run's own `shape`, against COUNTED; its variants say so). Estimators:
    published_alpha, hit[1], block_efficiency of the tree from every position and of a chain
    of `gamma` over the visited blocks. ValueError: a run without nodes.
    """
    nodes = require(run.nodes, ["position"], "nodes")
    visited = score.block_estimators()["block_efficiency"]
    chain = f"block_efficiency, chain of {gamma}, visited"
    asked = {
        "published_alpha": (nodes, score.published_alpha),
        "hit[1]": (run.trace, member(score.hit, 1)),
        "block_efficiency, tree": (nodes, score.tree_estimators()["block_efficiency"]),
        chain: (run.trace, visited),
    }
    parts = {}
    for name, (frame, estimator) in asked.items():
        settings = {"new tokens": (cut_texts(frame, limits), WHOLE)}
        if lengths is not None:
            settings["prompt length"] = (by_length(frame, lengths), THIRDS[0])
        for setting, (variants, base) in settings.items():
            if name == chain:
                variants = {
                    variant: replay.prompt_sums(replay.replay(rows, gamma))
                    for variant, rows in variants.items()
                }
            parts[setting, name] = compare_variants(variants, estimator, base)
    ends = compare_variants(
        text_ends(run.trace, shape, max_new_tokens, nodes), visited, COUNTED
    )
    ends["variant"] = "last block " + ends["variant"]
    parts["last block", "block_efficiency, tree, visited"] = ends
    keys = ["setting", "estimator"]
    return pd.concat(parts, names=keys).reset_index(keys).reset_index(drop=True)


# ---- for the notebook ----------------------------------------------------------------------------


def prompt_lengths(profile: Profile) -> dict[str, int] | None:
    """Tokens of each prompt of a profile; None where a domain has too few prompts for thirds."""
    if profile.prompts_per_domain < 3 * MIN_PROMPTS:
        return None
    texts = runs.profile_prompts(profile)
    tokenizer = pairs.load_tokenizer(pairs.model_folder(profile.target))
    encoded = prompts.encode_prompts(
        tokenizer, texts, profile.max_prompt_tokens, profile.template
    )
    return {prompt.prompt_id: len(prompt.ids) for prompt in encoded}


def moved(settings: pd.DataFrame) -> pd.DataFrame:
    """Of `sensitivity`, the mean of domains under each variant that is not a base."""
    bases = [*BASES, f"last block {COUNTED}"]
    rows = settings[
        (settings["domain"] == score.ALL) & ~settings["variant"].isin(bases)
    ]
    return rows.drop(columns="domain").reset_index(drop=True)


def as_changes(moved: pd.DataFrame) -> Estimates:
    """`moved` as estimates of the change, by setting, variant and estimator, with its `unit`."""
    tokens = moved["estimator"].str.startswith("block_efficiency")
    unit = np.where(tokens, "tokens per target pass", "share of tokens")
    keys = ["setting", "variant", "estimator", "unit"]
    return Estimates.of(moved.assign(unit=unit), "change", keys, digits=3)


def settings_said(rows: Estimates) -> str:
    """One line a variant: which estimators it raises, lowers, cannot be seen to move."""
    words = "raises", "lowers", "cannot be seen to move", "estimator"
    return "\n".join(
        f"* {variant}: {of_variant.sentence(*words)}."
        for variant, of_variant in rows.groups("variant")
    )
