"""Notebook 13: Kendall's W and its null hypothesis."""

import ast

import numpy as np
import pytest
from scipy.stats import rankdata

from speclab.logs import atlas
from speclab.study.profiles import ROOT


@pytest.fixture(scope="module")
def cells():
    """The functions of the notebook."""
    tree = ast.parse((ROOT / "notebooks" / "13_public_runs.py").read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    found = {"np": np, "rankdata": rankdata}
    exec(compile(ast.Module(functions, []), "13_public_runs.py", "exec"), found)
    return found


METHODS, TASKS, PROMPTS, RESAMPLES = 5, 6, 20, 200


def measured(rng, effect, common=0.0):
    """Values (1 + n, methods, tasks) of methods with unrelated orders of the tasks (and `common`,
    an effect that they share), on the same prompts; then of n resamples of the prompts.
    """
    prompts = rng.normal(size=(TASKS, PROMPTS))
    own = 0.5 * rng.normal(size=(METHODS, TASKS, PROMPTS))
    effects = effect * rng.normal(size=(METHODS, TASKS)) + common * rng.normal(size=TASKS)
    rows = prompts + own + effects[..., None]
    drawn = rng.multinomial(PROMPTS, np.full(PROMPTS, 1 / PROMPTS), (RESAMPLES, TASKS)) / PROMPTS
    return np.concatenate([rows.mean(axis=-1)[None], np.einsum("btn,mtn->bmt", drawn, rows)])


def rejected(cells, null, studies=400, **effects):
    """The share of studies in which W is significant at 5 % against a null."""
    rng, count = np.random.default_rng(0), 0
    for _ in range(studies):
        values = measured(rng, **effects)
        by_chance = cells["kendalls_w"](null(values, rng))
        count += cells["share_as_high"](cells["kendalls_w"](values[0]), by_chance) <= 0.05
    return count / studies


def random_orders(values, rng):
    """The null in which no task matters for any method."""
    return rng.random(values[1:].shape)


def test_w_has_its_level_where_tasks_matter_and_prompts_are_shared(cells):
    level = rejected(cells, cells["unrelated_orders"], effect=0.6)
    assert 0.02 <= level <= 0.085
    # negative control: against random orders the shared prompts alone are "one order"
    assert rejected(cells, random_orders, effect=0.6) > 0.12
    shared = rejected(cells, cells["unrelated_orders"], studies=100, effect=0.6, common=1.5)
    assert shared > 0.9, "an order that there is is found"


def test_w_of_the_atlas_by_hand():
    """Ranks by pandas: without translation the agreement is a third."""
    runs = ["eagle", "recycling", "medusa", "sps", "pld", "lookahead"]
    rows = atlas.group_tasks(atlas.answers().query("run in @runs").astype({"domain": str}))
    sums = rows.groupby(["run", "domain"], observed=True)[["tokens", "passes"]].sum()
    values = (sums["tokens"] / sums["passes"]).unstack().loc[runs]
    for table, expected in ((values, 0.498), (values.drop(columns="translation"), 0.333)):
        totals = table.rank(axis=1).sum()
        methods, size = table.shape
        w = 12 * ((totals - totals.mean()) ** 2).sum() / (methods**2 * (size**3 - size))
        assert w == pytest.approx(expected, abs=0.001)
