"""Does the policy give what it promised?

Prompts are decoded plainly and by the policy, and compared with the replay and with two prices of
the same blocks (section 2).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from speclab.analysis import policy
from speclab.analysis.choose import Prices
from speclab.draft import Shape, parse_shape
from speclab.models import timing
from speclab.models.pairs import Pair
from speclab.prompts import EncodedPrompt, Prompt
from speclab.score import ratio_of
from speclab.show import figures
from speclab.show.estimates import direction
from speclab.stats import Interval, bootstrap

SECONDS = {"measured": "policy_s", "promised": "promised_s", "forecast": "forecast_s"}


def of_each_domain(prompts: Sequence, first: int = 0, last: int = 0) -> list:
    """The first (or last) few prompts of each domain, domains in order of appearance."""
    found = []
    for domain in dict.fromkeys(prompt.domain for prompt in prompts):
        own = [prompt for prompt in prompts if prompt.domain == domain]
        found += own[:first] + own[len(own) - last :]
    return found


def route(plan: policy.Policy, prompts: Sequence[Prompt]) -> dict[str, str]:
    """prompt_id -> the setting that `decode --policy` would give it."""
    return {prompt.prompt_id: policy.setting_for(plan, prompt) for prompt in prompts}


def shapes_of(settings: Sequence[str]) -> dict[str, Shape]:
    """The different settings that draft, by name."""
    shapes = {name: parse_shape(name) for name in settings}
    return {name: shape for name, shape in shapes.items() if shape.size}


def decoded(
    pair: Pair,
    prompts: Sequence[EncodedPrompt],
    setting: Mapping[str, str],
    max_new_tokens: int,
    repeats: int,
) -> pd.DataFrame:
    """The prompts decoded plainly and by their settings, in swapped orders, medians of the repeats:
    prompt_id, domain, setting, tokens, blocks, policy_s, plain_s.
    """
    parts = []
    for name in dict.fromkeys(setting.values()):
        own = [prompt for prompt in prompts if setting[prompt.prompt_id] == name]
        shape = {"policy": parse_shape(name)}
        parts.append(timing.decoded_speed(pair, own, shape, max_new_tokens, repeats))
    by = ["method", "prompt_id", "domain"]
    medians = pd.concat(parts).groupby(by)[["tokens", "blocks", "time_s"]].median()
    each = medians.loc["policy"].rename(columns={"time_s": "policy_s"})
    each = each.assign(plain_s=medians.loc["plain", "time_s"]).reset_index("domain")
    return each.loc[list(setting)].assign(setting=list(setting.values())).reset_index()


def against_prices(
    each: pd.DataFrame, promised: Prices, forecast: Prices
) -> pd.DataFrame:
    """`decoded` with the seconds that the same blocks take at two prices (promised_s, forecast_s),
    in units of the prompt's own plain tokens, and `differs`: the replay's blocks or tokens are not
    the decoder's.
    """
    setting = dict(zip(each["prompt_id"], each["setting"], strict=True))
    replayed = promised.judged(setting)[["emitted", "target_passes"]].to_numpy()
    token_s = each["plain_s"] / each["tokens"]
    return each.assign(
        promised_s=token_s * promised.judged(setting)["cost"].to_numpy(),
        forecast_s=token_s * forecast.judged(setting)["cost"].to_numpy(),
        differs=(each[["tokens", "blocks"]].to_numpy() != replayed).any(axis=1),
    )


@dataclass(frozen=True)
class Outcome:
    """`measured`: the policy's speed-up; `promise`, `forecast`: what the two prices say of it;
    `over_promise`, `over_forecast`: measured over each, prompt by prompt. margin: how far either
    may be off and still count as right, named beforehand (0.1: 10 %).
    """

    measured: Interval
    over_promise: Interval
    over_forecast: Interval
    promise: float
    forecast: float
    margin: float = 0.1

    @property
    def kept(self) -> str:
        """What became of the promise: 'kept', 'not kept' or 'cannot be told' (`verdict`)."""
        return self.verdict(self.over_promise, "kept", "not kept")

    @property
    def agrees(self) -> str:
        """Whether the forecast was 'right', 'wrong' or 'cannot be told'."""
        return self.verdict(self.over_forecast, "right", "wrong")

    def verdict(self, ratio: Interval, right: str, wrong: str) -> str:
        """`right` if all of the interval of measured over predicted lies within the margin around
        1, `wrong` if all of it lies outside, on one side, else 'cannot be told'.
        """
        least, most = 1 - self.margin, 1 + self.margin
        if least <= ratio.low and ratio.high <= most:
            return right
        if ratio.high < least or ratio.low > most:
            return wrong
        return "cannot be told"

    def in_words(self) -> str:
        """Whether the promise was kept and the forecast right, and the price of a block."""
        prices = direction(
            self.over_forecast,
            above="blocks took less than their price",
            below="blocks took more than their price",
            neither="prices cannot be told from measured ones",
            than=1,
        )
        return (
            f"Speed-up measured **{self.measured}**. The promise is {self.promise:.3f}; measured "
            f"over promise is {self.over_promise}. Kept to within {self.margin:.0%}? "
            f"**{self.kept}**. The forecast is {self.forecast:.3f}; measured over forecast is "
            f"{self.over_forecast}: {self.agrees} to within {self.margin:.0%}; {prices}."
        )


def outcome(each: pd.DataFrame, margin: float = 0.1) -> Outcome:
    """The speed-ups of all checked prompts together; intervals resample prompts."""
    rows = each.drop(columns="domain")
    measured, over_promise, over_forecast = (
        bootstrap(rows, ratio_of(seconds, "policy_s"))
        for seconds in ("plain_s", "promised_s", "forecast_s")
    )
    plain_s = each["plain_s"].sum()
    return Outcome(
        measured,
        over_promise,
        over_forecast,
        float(plain_s / each["promised_s"].sum()),
        float(plain_s / each["forecast_s"].sum()),
        margin,
    )


def check_table(each: pd.DataFrame, plan: policy.Policy) -> pd.DataFrame:
    """domain, setting, block_efficiency, and the measured, promised and forecast speed-ups."""
    numbers = ["tokens", "blocks", "plain_s", *SECONDS.values()]
    sums = each.groupby("domain", sort=False)[numbers].sum()
    table = pd.DataFrame({"setting": plan.domains}).loc[sums.index]
    table["block_efficiency"] = sums["tokens"] / sums["blocks"]
    for name, seconds in SECONDS.items():
        table[name] = sums["plain_s"] / sums[seconds]
    return table.rename_axis("domain").reset_index()


def draw_check(each: pd.DataFrame, found: Outcome) -> figures.Figure:
    """Measured over forecast speed-up, a point a prompt; across it the interval of all prompts
    together, at the forecast and (hollow) at the promise. On the line: as forecast.
    """
    figure, axes = figures.subplots(height=3.2)
    for domain, rows in each.groupby("domain", sort=False):
        look = figures.style_of(domain) | {"linestyle": "none", "label": domain}
        axes.plot(
            rows["plain_s"] / rows["forecast_s"],
            rows["plain_s"] / rows["policy_s"],
            **look,
        )
    measured = found.measured
    marks = {
        "all, forecast": (found.forecast, "black"),
        "all, promise": (found.promise, "white"),
    }
    for label, (x, face) in marks.items():
        axes.vlines(x, measured.low, measured.high, color="black")
        look = {
            "color": "black",
            "markerfacecolor": face,
            "markersize": 10,
            "linestyle": "none",
        }
        axes.plot(x, measured.estimate, marker="*", label=label, **look)
    axes.axline((1, 1), slope=1, color="black", linewidth=0.8, zorder=1)
    axes.set(
        xlabel="forecast speed-up over plain decoding (T = 0)",
        ylabel="measured speed-up",
    )
    figures.legend_above(figure, axes)
    return figure
