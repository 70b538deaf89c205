"""How sure so many nodes and so many prompts can make a study: design effect, and the power of the
test itself on redrawn studies beside the formula of `speclab.analysis.power`.
"""

from collections.abc import Mapping

import pandas as pd

from speclab import score, stats
from speclab.analysis import power
from speclab.score import Estimator
from speclab.show import figures
from speclab.show.estimates import Estimates

PROMPTS = (25, 50, 200)  # a domain: the studies that are drawn and redrawn
INDEPENDENT, CLUSTERED = "nodes as independent", "prompts resampled"


def effect_by_domain(nodes: pd.DataFrame, published: Estimates) -> pd.DataFrame:
    """By domain: prompts, nodes, half widths of the interval for independent nodes
    (1.96 sd / sqrt(n)) and of the prompt-clustered one, design_effect with low and high, and the
    independent nodes that say as much. `published`: published_alpha of the domains.
    """
    rows = published.frame.set_index("domain")
    alphas = nodes.assign(ratio=score.ratio(nodes)).groupby("domain", observed=True)
    own = alphas.agg(
        prompts=("prompt_id", "nunique"),
        nodes=("ratio", "size"),
        ratio_sd=("ratio", "std"),
    ).loc[rows.index]
    half = 1.96 * own["ratio_sd"] / own["nodes"] ** 0.5
    effect = stats.by_domain(
        power.by_prompt(nodes), power.design_effect(), method=stats.BOOTSTRAP_T
    ).set_index("domain")
    return own[["prompts", "nodes"]].assign(
        half_width_nodes=half,
        half_width_prompts=(rows["high"] - rows["low"]) / 2,
        design_effect=effect["estimate"],
        low=effect["low"],
        high=effect["high"],
        effective_nodes=(own["nodes"] / effect["estimate"]).round(),
    )


def both_intervals(published: Estimates, effect: pd.DataFrame) -> Estimates:
    """published_alpha by domain with either `interval` of `effect_by_domain`."""
    rows = published.frame[["domain", "estimate", "low", "high"]]
    half = rows["domain"].map(effect["half_width_nodes"])
    naive = rows.assign(low=rows["estimate"] - half, high=rows["estimate"] + half)
    return Estimates.stacked(
        {INDEPENDENT: naive, CLUSTERED: rows}, "interval", digits=3
    )


def farthest(values: pd.Series) -> tuple[str, str]:
    """The domains of the highest and the lowest value."""
    return values.idxmax(), values.idxmin()


def redrawn(
    nodes: pd.DataFrame,
    estimators: Mapping[str, Estimator],
    domains: tuple[str, str],
    level: float,
    family: int,
    repeats: int = 100,
    n: int = 399,
) -> pd.DataFrame:
    """The test of two domains on studies redrawn from a run's prompts, at the run's own difference:
    estimator, prompts, found (its power), difference, formula (the power it should have).
    """
    sides = [nodes[nodes["domain"] == name] for name in domains]
    rows = []
    for name, estimator in estimators.items():
        design = power.between(nodes, estimator, *domains)
        difference = abs(estimator(sides[0]) - estimator(sides[1]))
        for prompts in PROMPTS:
            found = power.simulated_power(
                *sides,
                estimator,
                prompts,
                level=level / family,
                repeats=repeats,
                n=n,
            )
            formula = float(design.power(difference, prompts, level, family))
            rows.append((name, prompts, found, difference, formula))
    return pd.DataFrame(
        rows, columns=["estimator", "prompts", "found", "difference", "formula"]
    )


def power_curves(
    design: power.Design, likely: float, level: float, family: int
) -> pd.DataFrame:
    """Power by true difference, for each of PROMPTS: prompts, difference, power."""
    widest = design.detectable(16, likely, level, family)[0]
    grid = [
        (prompts, widest * step / 200) for prompts in PROMPTS for step in range(201)
    ]
    frame = pd.DataFrame(grid, columns=["prompts", "difference"])
    found = design.power(frame["difference"], frame["prompts"], level, family)
    return frame.assign(power=found)


def power_picture(
    lines: Mapping[str, pd.DataFrame], studies: pd.DataFrame, plans: pd.DataFrame
) -> figures.Figure:
    """Curves of each estimator (`power_curves`), the redrawn studies as circles, the paper's
    differences (`plans`) as crosses on the axis.
    """
    figure, panels = figures.subplots(1, len(lines), height=2.9, squeeze=False)
    for axes, (name, curve) in zip(panels[0], lines.items(), strict=True):
        for shade, (prompts, line) in zip(
            ("#9ecae1", "#3182bd", "#08306b"), curve.groupby("prompts"), strict=True
        ):
            label = f"{prompts} prompts"
            axes.plot(line["difference"], line["power"], color=shade, label=label)
        dots = studies[studies["estimator"] == name]
        axes.plot(
            dots["difference"],
            dots["found"],
            "o",
            color="black",
            label="redrawn studies",
        )
        gaps = plans.loc[plans["estimator"] == name, "difference"].abs()
        axes.plot(
            gaps, 0 * gaps + 0.03, "x", color="black", label="the paper's differences"
        )
        axes.set(
            xlabel=f"true difference in {name}",
            ylim=(0, 1.02),
            xlim=(0, line["difference"].max()),
        )
    panels[0, 0].set_ylabel("power")
    figures.legend_above(figure, panels[0, 0])
    return figure
