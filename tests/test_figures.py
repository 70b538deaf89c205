"""Figures are drawn from their data alone, with the same bytes every time, and are legible at one
column. Helpers draw the numbers that they get.
"""

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

from speclab.plain import read_json
from speclab.show import drawings, figure_files, figures, style, tables
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


def points():
    """A figure of FRAME."""
    return figures.facets(FRAME, x="estimator", kind="points")


@pytest.fixture
def place(tmp_path):
    """The folder of notebook 02 of a profile."""
    return tmp_path / "figures" / "mine" / "02"


# ---- files ---------------------------------------------------------------------------------------


def test_files_are_the_same_bytes_and_say_what_they_are(place, tmp_path):
    again = tmp_path / "again" / "mine" / "02"
    for folder in (place, again):
        figure_files.save_figure(points, FRAME, folder, "by-domain", CAPTION)
    names = {f"by-domain{end}" for end in (".png", ".pdf", ".svg", "-column.pdf", "-column.png")}
    names |= {"by-domain.csv", figure_files.CAPTIONS}
    assert {path.name for path in place.iterdir()} == names
    assert all((place / name).read_bytes() == (again / name).read_bytes() for name in names)
    assert read_json(place / figure_files.CAPTIONS, "") == {"by-domain": CAPTION}
    assert_frame_equal(pd.read_csv(place / "by-domain.csv"), FRAME)
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


def test_pdfs_have_no_title(place):
    """A paper has its own captions."""
    for slug, title in (("bare", ""), ("told", "Code is accepted more often than chat")):
        figure_files.save_figure(points, FRAME, place, slug, CAPTION, title)
    bare, told = ([*place.glob(f"{slug}*.pdf")] for slug in ("bare", "told"))
    heights = [
        [re.search(rb"/MediaBox \[ (.+?) \]", path.read_bytes())[1] for path in sorted(paths)]
        for paths in (bare, told)
    ]
    assert heights[0] == heights[1] and len(heights[0]) == 2
    svgs = [(place / f"{slug}.svg").read_text() for slug in ("bare", "told")]
    assert ["Code is accepted" in re.sub("<title>.*?</title>", "", svg) for svg in svgs] == [
        False,
        True,
    ]


@pytest.mark.parametrize("inches", [style.TWO_COLUMNS, style.ONE_COLUMN])
def test_a_title_stands_above_everything_and_a_stamp_across(inches):
    title = "Code is accepted more often than chat under both estimators, by 20 points"
    bare = figure_files.draw_styled(points, inches)
    told = figure_files.draw_styled(points, inches, title, "timing unreliable")
    above, stamp = told.texts[-2:]
    assert above.get_text().replace("\n", " ") == title
    assert stamp.get_text() == "timing unreliable"
    assert told.get_figheight() > bare.get_figheight()
    lowest = above.get_window_extent().y0
    others = [*told.axes, *told.legends, *told.texts[:-2]]
    assert max(one.get_tightbbox().y1 for one in others) < lowest
    assert above.get_window_extent().x1 < told.bbox.x1
    panels = [one.axes[0].get_window_extent().height for one in (bare, told)]
    assert_allclose(*panels, atol=1)


def test_a_readers_style_file_is_used_and_missing_glyphs_are_said_once(
    tmp_path, monkeypatch, capsys
):
    rules = tmp_path / "paper.mplstyle"
    rules.write_text("font.family: DejaVu Serif\nlines.linewidth: 3\n")
    monkeypatch.setenv(figures.STYLE, str(rules))
    figures.check_style()
    with figures.styled():
        assert figures.rcParams["font.family"] == ["DejaVu Serif", style.FONT]
        assert figures.rcParams["lines.linewidth"] == 3
    frame = FRAME.replace({"domain": {"code": "日本"}})
    for _ in range(2):
        figure_files.draw_styled(lambda: figures.facets(frame, x="estimator", kind="points"))
    error = capsys.readouterr().err
    assert error.count("no font of the figures has Glyph") == 1 and "STYLE=" in error


# ---- looks ---------------------------------------------------------------------------------------


def marker_of(look):
    return look["marker"], look.get("markerfacecolor")  # filled or hollow


@pytest.mark.parametrize("hue", ["domain", "estimator"])
@pytest.mark.parametrize("fixed", [[], ["math", "code"], ["published", "chat"]])
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
    figure = figure_files.draw_styled(lambda: figures.facets(frame, "domain", kind="points"))
    svg = figure_files.picture(figure, "svg").decode()
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
    figure = figure_files.draw_styled(
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
    return drawings.tree_frame(tree, labels, odds, odds / 2, np.isin(np.arange(count), accepted))


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
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 1
    assert r"\begin{tabular}{lr}" in text, (
        "a column of numbers, also of missing ones, is on the right"
    )
    of_name = tables.export(FRAME, tmp_path, "best-gamma")[1].read_text(encoding="utf-8")
    assert r"\caption{best gamma}" in of_name and r"\label{tab:best-gamma}" in of_name
    long = pd.concat([FRAME] * 4)  # 16 rows
    for more, begins in (({"is_wide": True}, "table*"), ({}, "table")):
        text = tables.export(FRAME, tmp_path, "wide", **more)[1].read_text(encoding="utf-8")
        assert f"\\begin{{{begins}}}" in text and "alpha & code & 0.700 & 0.600 & 0.750" in text
    text = tables.export(long, tmp_path, "long")[1].read_text(encoding="utf-8")
    assert r"\begin{longtable}{llrrr}" in text and r"\begin{table}" not in text
