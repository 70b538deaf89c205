"""Figures are drawn from their data alone, with the same bytes every time, and are legible at one
column. Helpers draw the numbers that they get.
"""

import json
import re
from itertools import combinations, pairwise

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal

from speclab.cli.commands import main
from speclab.show import drawings, figures, redraw, style, tables
from speclab.study.profiles import ROOT
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
CAPTION = "What code and chat have (50 %)."


def kept(folder, frame=FRAME, function=figures.facets, slug="by-domain"):
    """A figure's data and recipe in the folder of a notebook."""
    options = {}
    if function is figures.facets:
        options = {"x": "estimator", "kind": "points"}
    redraw.keep_recipe(function, frame, folder, slug, CAPTION, options)
    return folder


@pytest.fixture
def place(tmp_path):
    """The folder of notebook 02 of a profile."""
    return tmp_path / "figures" / "mine" / "02"


# ---- files ---------------------------------------------------------------------------------------


def test_files_are_the_same_bytes_and_say_what_they_are(place, tmp_path):
    for folder in (place, tmp_path / "again" / "mine" / "02"):
        redraw.write_pictures(kept(folder), "by-domain")
    for end in (".png", ".pdf", ".svg", "-column.pdf", "-column.png"):
        here, there = ((folder / f"by-domain{end}").read_bytes() for folder in (place, folder))
        assert here == there
    png, pdf, svg = ((place / f"by-domain.{kind}").read_bytes() for kind in ("png", "pdf", "svg"))
    assert figures.plt.imread(place / "by-domain.png").shape[1] == 1400
    assert b"/Title (by domain \\(02, mine\\))" in pdf and CAPTION[:4].encode() in pdf
    assert b"CreationDate" not in pdf and b"/Type3" not in pdf.replace(b" ", b"")
    assert b">code</text>" in svg and b"<image" not in svg
    assert b"Software" not in png
    sizes = [
        float(re.search(rb"/MediaBox \[ 0 0 ([\d.]+)", path.read_bytes())[1]) / 72
        for path in (place / "by-domain.pdf", place / "by-domain-column.pdf")
    ]
    assert_allclose(sizes, [style.TWO_COLUMNS, style.ONE_COLUMN])


@pytest.mark.parametrize("inches", [style.TWO_COLUMNS, style.ONE_COLUMN])
def test_a_title_stands_above_everything_and_a_stamp_across(place, inches):
    title = "Code is accepted more often than chat under both estimators, by 20 points"
    options = {"x": "estimator", "kind": "points"}
    words = {"title": title, "stamp": "timing unreliable"}
    redraw.keep_recipe(figures.facets, FRAME, place, "told", CAPTION, options, **words)
    told = redraw.figure_of(place, "told", inches)
    above, stamp = told.texts[-2:]
    assert above.get_text().replace("\n", " ") == title and stamp.get_text() == words["stamp"]
    others = [*told.axes, *told.legends, *told.texts[:-2]]
    assert max(one.get_tightbbox().y1 for one in others) < above.get_window_extent().y0
    without = redraw.figure_of(place, "told", inches, title="")
    assert without.texts[-2].get_text() == ""


def test_data_are_read_as_they_were_written(place):
    frame = pd.DataFrame(
        {
            "domain": ["NA", "007", "", "日本"],
            "gamma": [1, 2, 3, 4],
            "is_drafted": [True, False, True, True],
            "estimate": [0.1 + 0.2, 1 / 3, np.nan, 1e-17],
            "low": np.nan,
            "high": [1.0, 2.0, 3.0, np.inf],
        }
    )
    kept(place, frame)
    texts = redraw.recipes_in(place)["by-domain"]["texts"]
    assert_frame_equal(redraw.data_of(place / "by-domain.csv", texts), frame, check_dtype=False)


def test_the_verb_draws_what_the_notebook_drew_and_other_widths_and_fonts(
    place, tmp_path, monkeypatch, capsys
):
    redraw.write_pictures(kept(place), "by-domain")
    monkeypatch.chdir(tmp_path)
    call = ["figure", "02/by-domain", "--profile", "mine", "--figures", str(tmp_path / "figures")]
    for kind in redraw.FORMATS:
        assert main([*call, "--format", kind]) == 0
        drawn = (tmp_path / f"02-by-domain.{kind}").read_bytes()
        assert drawn == (place / f"by-domain.{kind}").read_bytes()
    assert main([*call, "--width", "3.4", "--out", "column.pdf"]) == 0
    assert (tmp_path / "column.pdf").read_bytes() == (place / "by-domain-column.pdf").read_bytes()
    look = ["--width", "5", "--height", "3", "--font", "DejaVu Serif", "--size", "9"]
    assert main([*call, *look, "--out", "other.svg"]) == 0
    svg = (tmp_path / "other.svg").read_text()
    assert 'width="360pt" height="216pt"' in svg and "9px; font-family: 'DejaVu Serif'" in svg
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["03/by-domain"], "notebook '03' has no figures in"),
        (["02/by-domian"], "did you mean 'by-domain'?"),
        (["02/by-domain", "--font", "DejaVu Serf"], "installed fonts: DejaVu Serif, "),
        (["02/by-domain", "--width", "21"], "1<=x<=20"),
        (["02/by-domain", "--format", "eps"], "'pdf', 'svg', 'png'"),
        (["02/by-domain", "--out", "a.eps"], "must end in .pdf, .svg or .png"),
        (["02/by-domain", "--out", "a.svg", "--format", "pdf"], "must end in .pdf"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(place, options, said, capsys):
    kept(place)
    folder = str(place.parents[1])
    assert main(["figure", "--profile", "mine", "--figures", folder, *options]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("os.system", "is not a function of speclab"),
        ("speclab.cli.commands.main", "does not draw a figure"),
        ("speclab.show.figures.nothing", "does not draw a figure"),
        ("speclab.nowhere.draw", "does not draw a figure"),
    ],
)
def test_a_recipe_names_a_function_of_the_package_that_draws(place, function, said):
    kept(place)
    path = place / redraw.RECIPES
    recipes = json.loads(path.read_text())
    recipes["by-domain"]["function"] = function
    path.write_text(json.dumps(recipes))
    with pytest.raises(ValueError, match=said):
        redraw.figure_of(place, "by-domain")


def test_missing_glyphs_are_said_once(place, capsys):
    frame = FRAME.replace({"domain": {"code": "日本"}})
    for _ in range(2):
        redraw.figure_of(kept(place, frame), "by-domain", font="DejaVu Serif")
    error = capsys.readouterr().err
    assert error.count("font: DejaVu Serif lacks") == 1 and "--font" in error


# ---- looks ---------------------------------------------------------------------------------------


def marker_of(look):
    return look["marker"], look.get("markerfacecolor")  # filled or hollow


@pytest.mark.parametrize("hue", ["domain", "estimator"])
@pytest.mark.parametrize("fixed", [[], ["math", "code"]])
def test_twelve_series_differ_in_colour_marker_and_line(hue, fixed):
    names = [*fixed, *map(str, range(12 - len(fixed)))]
    looks = figures.looks_of(names, hue)
    for one, other in combinations(looks.values(), 2):
        for part in ("color", "linestyle"):
            assert one[part] != other[part]
        assert marker_of(one) != marker_of(other)
    for name in fixed:
        assert looks[name]["color"] == style.SERIES[name]["color"]
    with_more = figures.looks_of(map(str, range(13)), hue)
    assert with_more["12"]["color"] == with_more["0"]["color"]


def test_the_explorer_has_the_colours_of_the_figures():
    page = (ROOT / "speclab/explore/assets/page.css").read_text()
    light = page[: page.index("@media")]
    colours = re.findall(r"--look-\d+: (.+);", light)
    assert colours == [look["color"].lower() for look in style.LOOKS]


def test_names_are_shown_as_they_are():
    names = ["_under", "$x_1$ & $y", "a|b", "<b>*c*</b>"]
    frame = pd.concat([FRAME[:1].assign(domain=name) for name in names])
    figure = redraw.draw_styled(lambda: figures.facets(frame, "domain", kind="points"))
    svg = redraw.picture(figure, "svg").decode()
    for shown in ("_under", "$x_1$ &amp; $y", "a|b", "&lt;b&gt;*c*&lt;/b&gt;"):
        assert svg.count(shown) >= 2, "under the axis and in the legend"


# ---- what is drawn -------------------------------------------------------------------------------


def test_drawn_are_estimates_and_ends():
    with figures.styled():
        for horizontal in (False, True):
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
            "gamma": [2, 1, 3],
            "made": ["replayed", "replayed", "decoded"],
            "estimate": [2.1, 1.1, 7.0],
            "low": [1.0, 1.0, 6.0],
            "high": [3.0, 2.5, 8.0],
        }
    )
    looks, only = {"replayed": {"color": "red"}}, {"made": ["replayed"]}
    figure = figures.facets(frame, "gamma", hue="made", looks=looks, only=only)
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


def frame_of(domains, panels):
    """Estimates of this many domains and panels, all with long names."""
    rows = [
        (f"panel number {panel}", f"a longer name of category {domain}", 0.5, 0.4, 0.6)
        for panel in range(panels)
        for domain in range(domains)
    ]
    return pd.DataFrame(rows, columns=["name", "domain", "estimate", "low", "high"])


@pytest.mark.parametrize("kind", ["lines", "points", "bars"])
@pytest.mark.parametrize("width", [style.ONE_COLUMN, style.TWO_COLUMNS])
@pytest.mark.parametrize(("domains", "panels"), [(1, 1), (4, 2), (12, 6)])
def test_a_figure_of_any_size_is_legible_and_fits_a_page(kind, width, domains, panels):
    frame = frame_of(domains, panels)
    x = "domain"
    if kind == "lines":
        frame, x = pd.concat([frame.assign(gamma=1), frame.assign(gamma=2)]), "gamma"
    figure = redraw.draw_styled(
        lambda: figures.facets(frame, x, columns="name", kind=kind, y="share of tokens"), width
    )
    assert figure.get_figwidth() == width and figure.get_figheight() <= style.TALLEST
    assert min(text.get_fontsize() for text in figure.findobj(Text)) >= 6
    inside = figure.bbox.padded(3)
    for label in [*figure.legends[0].get_texts(), *figure.texts]:
        box = label.get_window_extent()
        assert inside.x0 <= box.x0 and box.x1 <= inside.x1
    for axes in figure.axes:
        if axes.axison:
            assert axes.get_window_extent().height > 10
            title = axes._left_title.get_window_extent()
            assert title.width <= axes.get_window_extent().width + 15
            names = [name.get_window_extent() for name in axes.get_xticklabels()]
            for one, other in pairwise(names):
                assert one.x1 <= other.x0 + 1, "no name stands on its neighbour"
    if kind == "points":
        shown = [name.get_text().replace("\n", " ") for name in figure.axes[-1].get_xticklabels()]
        assert shown == list(frame["domain"].unique())


# ---- trees ---------------------------------------------------------------------------------------


def tree_of(tree, accepted):
    """Data of a drawn tree with made-up probabilities."""
    count = tree.size + 1
    labels = [f" t{i}" for i in range(count)]
    odds = np.linspace(0.9, 0.1, count)
    return redraw.tree_frame(tree, labels, odds, odds / 2, np.isin(np.arange(count), accepted))


TREE = tree_of(static_tree(3, 2, 8), [1, 3, 8])


def test_drawn_tree_shows_every_token_with_its_probabilities():
    with figures.styled():
        axes = drawings.draw_tree(TREE).axes[0]
    rows = TREE[1:].itertuples()
    texts = [f"␣t{row.node}\nq {row.q:.2f}  p {row.p:.2f}" for row in rows]
    assert [t.get_text() for t in axes.texts] == ["␣t0", *texts]
    widths = [text.arrow_patch.get_linewidth() for text in axes.texts[1:]]
    assert (np.array(widths) > 2).tolist() == TREE["accepted"][1:].tolist()
    children = TREE.index[(TREE["parent"] == 1) & (TREE["node"] > 0)]
    heights = [axes.texts[n].get_position()[1] for n in children]
    assert heights == sorted(heights), "the draft's best on top: the y axis points down"
    assert axes.yaxis_inverted()


# ---- tables --------------------------------------------------------------------------------------


def test_a_table_is_numbers_to_compute_with_and_cells_to_print(tmp_path):
    cells = pd.DataFrame({"a_b": ["$5 & 3 %", "−1"], "code": ["0.70 [0.60, 0.75]", None]})
    words = {"caption": "Share of `hit[1]` (95 %).", "label": "02-shares"}
    values, page = tables.export(FRAME, tmp_path, "shares", cells=cells, **words)
    assert_frame_equal(pd.read_csv(values), FRAME)
    text = page.read_text(encoding="utf-8")
    begun, ended = (re.findall(rf"\\{word}{{(\w+)}}", text) for word in ("begin", "end"))
    assert begun == ["table", "tabular"] and ended == begun[::-1]
    assert r"\caption{Share of hit[1] (95 \%).}" in text and r"\label{tab:02-shares}" in text
    assert r"\$5 \& 3 \% & 0.70 [0.60, 0.75] \\" in text and r"$-$1 & -- \\" in text
    long = pd.concat([FRAME] * 4)  # 16 rows
    for more, begins in (({"is_wide": True}, "table*"), ({}, "table")):
        text = tables.export(FRAME, tmp_path, "wide", **more)[1].read_text(encoding="utf-8")
        assert f"\\begin{{{begins}}}" in text and "alpha & code & 0.700 & 0.600 & 0.750" in text
    text = tables.export(long, tmp_path, "long")[1].read_text(encoding="utf-8")
    assert r"\begin{longtable}{llrrr}" in text and r"\begin{table}" not in text
