"""The share of the variance between prompts that the domain explains: a hand-made case, planted
effects, and statsmodels' mixed model as the reference.
"""

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

from speclab.lab import variance_components

SPACE = np.array([1, -1, 0.5, -0.5]) / np.sqrt(0.625)  # four domains, variance 1


def estimates(frame):
    """The share of each component."""
    parts = variance_components.shares(frame, "y", n=20)
    return {name: share.estimate for name, share in parts.items()}


def test_the_share_by_hand():
    """Prompt means 0-4 and 2-6, two texts each, one above and one below. The mean square of texts
    is 2; of prompts within their domain it is 5, and around the overall mean 60 / 9 (halves: of
    means).
    """
    means = [*range(5), *range(2, 7)]
    prompts = pd.DataFrame(
        {"prompt_id": range(10), "domain": ["code"] * 5 + ["chat"] * 5, "y": means}
    )
    frame = pd.concat([prompts.assign(seed=off, y=prompts["y"] + off) for off in (-1, 1)])
    within, whole = (5 - 2) / 2, (60 / 9 - 2) / 2
    wanted = {"domain": whole - within, "prompt": within, "draw": 2}
    assert estimates(frame) == pytest.approx(
        {name: of / (whole + 2) for name, of in wanted.items()}
    )
    of_means = 1 - (5 / 2) / (60 / 9 / 2)
    one_text = estimates(frame.drop(columns="seed"))
    assert one_text == pytest.approx({"domain": of_means, "prompt": 1 - of_means}), (
        "of one text the draw cannot be separated"
    )


def variances(frame, domains):
    """Of statsmodels' mixed model: the prompts', about the domains' levels or about one, and the
    texts' about their prompt.
    """
    formula = "y ~ 0 + domain" if domains else "y ~ 1"
    fit = smf.mixedlm(formula, frame, groups=frame["prompt_id"]).fit(method="powell")
    assert fit.converged
    return fit.cov_re.iloc[0, 0], fit.scale


def test_the_share_is_that_of_statsmodels():
    frame = texts(0.8, 1.0, 1.0, seeds=6, prompts=8, rows=1, seed=3)
    (within, draw), (prompts, _) = variances(frame, True), variances(frame, False)
    theirs = np.array([prompts - within, within, draw]) / (prompts + draw)
    assert [*estimates(frame).values()] == pytest.approx(theirs, abs=1e-4)


def texts(domain, prompt, text, seeds=3, prompts=30, rows=16, seed=0):
    """Several texts a prompt: y = domain + prompt + text + row, of these standard deviations.

    prompts (how many), prompt (their deviation): of every domain, or of each of the four.
    """
    rng = np.random.default_rng(seed)
    of = np.arange(4).repeat(np.broadcast_to(prompts, 4))
    own = np.broadcast_to(prompt, 4)[of] * rng.standard_normal(len(of))
    which = np.arange(len(of)).repeat(seeds)
    level = domain * SPACE[of[which]] + own[which]
    level = level + text * rng.standard_normal(len(which))
    frame = pd.DataFrame(
        {
            "prompt_id": np.char.add("p", np.char.zfill(which.astype(str), 4)),
            "domain": np.array(["code", "math", "reasoning", "chat"])[of[which]],
            "seed": np.tile(range(seeds), len(of)),
        }
    ).loc[np.arange(len(which)).repeat(rows)]
    y = level.repeat(rows) + rng.standard_normal(len(frame))
    return frame.assign(y=y).reset_index(drop=True)


@pytest.mark.parametrize("sizes", [30, (60, 10, 20, 30)])
@pytest.mark.parametrize(
    ("domain", "prompt"), [(0.5, 0.4), (0.5, 0.0), (0.0, 0.4), (0.5, (0.3, 0.3, 1.0, 0.3))]
)
def test_the_three_components_of_texts_and_their_intervals(domain, prompt, sizes):
    """Planted deviations of domains and of prompts, in negative controls none, and in a small
    domain more: sums of squares that weight a domain by its prompts give another share.
    """
    of_prompts = np.mean(np.broadcast_to(prompt, 4) ** 2)
    variance = np.array([domain**2, of_prompts, 0.36 + 1 / 4])
    truth = variance / variance.sum()
    rows = []
    for seed in range(40):
        frame = texts(domain, prompt, 0.6, 3, sizes, rows=4, seed=seed)
        parts = variance_components.shares(frame, "y", n=200).values()
        rows.append([(share.estimate, share.low, share.high) for share in parts])
    estimate, low, high = np.moveaxis(rows, -1, 0)
    assert np.mean(estimate, axis=0) == pytest.approx(truth, abs=0.03)
    assert (np.mean((low <= truth) & (truth <= high), axis=0) >= 0.85).all()


def test_a_domain_of_few_prompts_changes_no_share():
    frame = texts(0.5, 0.4, 0.6, prompts=(6, 9, 20, 1), rows=2)
    known = frame[frame["domain"] != "chat"]
    assert frame["domain"].nunique() == 4 and estimates(frame) == estimates(known)


def test_what_cannot_be_parted_is_refused():
    frame = texts(0, 1, 1, prompts=6, rows=3)
    one = frame[frame["domain"] == "code"]
    with pytest.raises(ValueError, match="only code has 5 prompts or more"):
        variance_components.shares(one, "y")
    flat = variance_components.shares(frame.assign(y=0.1), "y", n=20)["domain"]
    assert (flat.estimate, flat.low, flat.high) == (0, 0, 0)
