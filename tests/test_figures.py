"""Figures: the files are stable, the style is fixed per domain, helpers draw the numbers they are
given.
"""

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from speclab.show import figures
from speclab.tree import static_tree

FRAME = pd.DataFrame(
    [
        ("alpha", "code", 0.7, 0.6, 0.75),
        ("alpha", "chat", 0.5, 0.4, 0.6),
        ("hit[1]", "code", 0.8, 0.7, 0.9),
        ("hit[1]", "chat", 0.6, np.nan, np.nan),
    ],
    columns=["estimator", "domain", "estimate", "low", "high"],
)


def picture(seed=0):
    figures.use_style()
    figure, axes = figures.subplots(width=figures.ONE_COLUMN, height=2)
    axes.plot(np.random.default_rng(seed).random(20), label="$p$")
    axes.legend()
    return figure


def test_saved_files_are_the_same_bytes_and_of_the_stated_size(tmp_path):
    saved = {}
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        path = figures.save(picture(seed), "01_plot", tmp_path / folder)
        files = path, path.with_suffix(".pdf")
        saved[folder] = [file.read_bytes() for file in files]
    assert saved["a"] == saved["b"] != saved["c"]
    assert figures.plt.imread(path).shape[:2] == (400, 680)
    png, pdf = saved["a"]
    assert b"CreationDate" not in pdf and b"/Type3" not in pdf.replace(b" ", b"")
    assert b"Software" not in png
    assert not figures.plt.get_fignums(), "pyplot does not know of it"


@pytest.mark.parametrize("horizontal", [False, True])
def test_interval_bars_draw_estimates_and_ends(horizontal):
    _, axes = figures.subplots()
    figures.interval_bars(FRAME, axes, x="estimator", horizontal=horizontal)
    assert [c.get_label() for c in axes.containers] == ["code", "chat"]
    points = [c.lines[0].get_xydata() for c in axes.containers]
    value, place = (0, 1) if horizontal else (1, 0)
    assert_allclose(points[0][:, value], [0.7, 0.8])
    assert_allclose(points[1][:, value], [0.5, 0.6])
    assert (points[0][:, place] < points[1][:, place]).all(), (
        "series stand side by side, not on each other"
    )
    segment = axes.containers[0].lines[2][0].get_segments()[0]
    assert_allclose(segment[:, value], [0.6, 0.75])
    ticks = axes.get_yticklabels() if horizontal else axes.get_xticklabels()
    assert [t.get_text() for t in ticks] == ["alpha", "hit[1]"]


def test_lines_with_bands_and_looks():
    frame = pd.DataFrame(
        {
            "gamma": [2, 1],
            "made": "replayed",
            "estimate": [2.1, 1.1],
            "low": [1.0, 1.0],
            "high": [3.0, 2.5],
        }
    )
    figure = figures.facets(frame, "gamma", hue="made", looks={"replayed": {"color": "red"}})
    (line,) = figure.axes[0].lines
    assert line.get_color() == "red"
    assert line.get_xydata().tolist() == [[1, 1.1], [2, 2.1]], "sorted by x"
    (band,) = figure.axes[0].collections
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices}
    assert corners == {(1, 1.0), (1, 2.5), (2, 1.0), (2, 3.0)}


def test_panels_hold_their_own_rows_and_share_ticks():
    figure = figures.facets(FRAME[:3], "estimator", columns="domain", kind="points")
    titles = [axes.get_title(loc="left") + axes.get_title() for axes in figure.axes]
    assert titles == ["code", "chat"]
    code, chat = (axes.containers for axes in figure.axes)
    heights = [bars.lines[0].get_ydata().tolist() for bars in (*code, *chat)]
    assert heights == [[0.7, 0.8], [], [], [0.5]]
    for axes in figure.axes:
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["alpha", "hit[1]"]


def test_drawn_tree_shows_every_token_with_its_probabilities():
    tree = static_tree(3, 2, 8)
    labels = [f" t{i}" for i in range(9)]
    draft, target = np.arange(9) / 10, np.arange(9) / 20
    accepted = np.isin(np.arange(9), [1, 3, 8])
    figure = figures.draw_tree(tree, labels, draft, target, accepted)
    axes = figure.axes[0]
    odds = zip(range(1, 9), draft[1:], target[1:], strict=True)
    texts = [f"␣t{node}\nq {q:.2f}  p {p:.2f}" for node, q, p in odds]
    assert [t.get_text() for t in axes.texts] == ["␣t0", *texts]
    assert [line.get_linestyle() for line in axes.lines[:8]] == [
        "-" if accepted[n] else "--" for n in range(1, 9)
    ]
    heights = [axes.texts[n].get_position()[1] for n in tree.children(1)]
    assert heights == sorted(heights), "the draft's best on top: the y axis points down"
    assert axes.yaxis_inverted()
