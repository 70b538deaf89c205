"""Figures are drawn from their data alone, with the same bytes every time, and are legible at one
column. Helpers draw the numbers that they get.
"""

import re
import shutil
import subprocess
from functools import partial
from itertools import combinations, pairwise, product

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal

from speclab.estimates import NUMBERS
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
    columns=["estimator", "domain", *NUMBERS],
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
    ends = (".csv", ".png", ".pdf", ".svg", "-column.pdf", "-column.png")
    written = {path.name: path.read_bytes() for path in place.iterdir()}
    assert {*written} == {figure_files.CAPTIONS, *(f"by-domain{end}" for end in ends)}
    assert written == {path.name: path.read_bytes() for path in again.iterdir()}
    assert read_json(place / figure_files.CAPTIONS, "") == {"by-domain": CAPTION}
    assert_frame_equal(pd.read_csv(place / "by-domain.csv"), FRAME)
    assert figures.plt.imread(place / "by-domain.png").shape[1] == 1400
    pdf, svg = (written[f"by-domain.{kind}"] for kind in ("pdf", "svg"))
    assert b"/Title (by domain \\(02, mine\\))" in pdf and CAPTION[:4].encode() in pdf
    assert b"CreationDate" not in pdf and b"/Type3" not in pdf.replace(b" ", b"")
    assert b">code</text>" in svg and b"<image" not in svg
    assert b"Software" not in written["by-domain.png"]


def test_pdfs_have_no_title(place):
    """A paper has its own captions. The pictures are as wide as its columns."""
    for slug, title in (("bare", ""), ("titled", "Code is accepted more often than chat")):
        figure_files.save_figure(points, FRAME, place, slug, CAPTION, title)
    for end, inches in (("", style.TWO_COLUMNS), ("-column", style.ONE_COLUMN)):
        pdfs = [(place / f"{slug}{end}.pdf").read_bytes() for slug in ("bare", "titled")]
        bare, titled = (re.search(rb"/MediaBox \[ 0 0 ([\d.]+) (.+?) \]", pdf) for pdf in pdfs)
        assert bare[0] == titled[0] and float(bare[1]) == pytest.approx(72 * inches)
    svg = re.sub("<title>.*?</title>", "", (place / "titled.svg").read_text())
    assert "Code is accepted" in svg


@pytest.mark.parametrize("inches", [style.TWO_COLUMNS, style.ONE_COLUMN])
def test_a_title_stands_above_everything(inches):
    title = "Code is accepted more often than chat under both estimators, by 20 points"
    figure = figure_files.draw_styled(points, inches, "timing unreliable")
    assert figure.texts[-1].get_text() == "timing unreliable"
    heights = [figure.axes[0].get_window_extent().height]
    with figures.styled(inches):
        figures.add_title(figure, title)
        figure.draw_without_rendering()
    heights.append(figure.axes[0].get_window_extent().height)
    assert_allclose(*heights, atol=6)
    above = figure.legends[0].get_title()
    assert above.get_text().replace("\n", " ") == title
    others = [*figure.axes, *figure.legends[0].get_texts()]
    assert max(one.get_tightbbox().y1 for one in others) < above.get_window_extent().y0
    assert figure.legends[0].get_window_extent().x1 < figure.bbox.x1


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
    said = "no font of the figures has 日 本; install one that has, as Noto Sans "
    assert capsys.readouterr().err.count(said) == 1


def test_fonts_of_a_profile_draw_what_the_house_font_lacks(monkeypatch, capsys):
    """The letter is in matplotlib's STIX fonts, and not in DejaVu Sans."""
    frame = FRAME.replace({"domain": {"code": "\N{SCRIPT SMALL G}"}})
    draw = partial(figures.facets, frame, x="estimator", kind="points")
    for fonts, said in (([], "no font of"), (["No Such", "STIXGeneral"], "font: 'No Such' is not")):
        for _ in range(2):
            figure_files.draw_styled(draw, fonts=fonts)
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1


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


@pytest.mark.parametrize(("kind", "value", "place"), [("points", 1, 0), ("bars", 0, 1)])
def test_drawn_are_estimates_and_ends(kind, value, place):
    axes = figures.facets(FRAME, "estimator", kind=kind).axes[0]
    code, chat = axes.containers
    (first, second), segment = (one.lines[0].get_xydata() for one in (code, chat)), code.lines[2][0]
    assert_allclose(first[:, value], [0.7, 0.8])
    assert_allclose(second[:, value], [0.5, 0.6])
    assert (first[:, place] < second[:, place]).all(), "series stand side by side"
    assert_allclose(segment.get_segments()[0][:, value], [0.6, 0.75])
    ticks = axes.get_yticklabels() if kind == "bars" else axes.get_xticklabels()
    assert [tick.get_text() for tick in ticks] == ["alpha", "hit[1]"]


def test_lines_with_bands():
    rows = [
        ("replayed", 2, 2.1, 1.0, 3.0),
        ("replayed", 1, 1.1, 1.0, 2.5),
        ("decoded", 3, 7.0, 6.0, 8.0),
    ]
    frame = pd.DataFrame(rows, columns=["made", "gamma", *NUMBERS])
    figure = figures.facets(frame, "gamma", hue="made", only={"made": ["replayed"]})
    (line,) = figure.axes[0].lines
    assert line.get_xydata().tolist() == [[1, 1.1], [2, 2.1]], "sorted by x"
    (band,) = figure.axes[0].collections
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices}
    assert corners == {(1, 1.0), (1, 2.5), (2, 1.0), (2, 3.0)}


def test_panels_hold_their_own_rows_and_share_ticks():
    figure = figures.facets(FRAME[:3], "estimator", columns="domain", kind="points")
    assert [axes.get_title(loc="left") or axes.get_title() for axes in figure.axes] == [
        "code",
        "chat",
    ]
    bars = [one for axes in figure.axes for one in axes.containers]
    assert [one.lines[0].get_ydata().tolist() for one in bars] == [[0.7, 0.8], [], [], [0.5]]
    for axes in figure.axes:
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["alpha", "hit[1]"]


@pytest.mark.parametrize("kind", ["lines", "points", "bars"])
@pytest.mark.parametrize("width", [style.ONE_COLUMN, style.TWO_COLUMNS])
@pytest.mark.parametrize(("domains", "panels"), [(1, 1), (12, 6)])
def test_a_figure_of_any_size_is_legible_and_fits_a_page(kind, width, domains, panels):
    """All names are long."""
    names = [f"a longer name of category {domain}" for domain in range(domains)]
    frame = pd.DataFrame(
        product(range(panels), names, (1, 2)), columns=["panel", "domain", "gamma"]
    ).assign(estimate=0.5, low=0.4, high=0.6)
    if kind != "lines":
        frame = frame[frame["gamma"] == 1]
    options = {"columns": "panel", "kind": kind, "y": "share of tokens"}
    x = "gamma" if kind == "lines" else "domain"
    figure = figure_files.draw_styled(lambda: figures.facets(frame, x, **options), width)
    assert figure.get_figwidth() == width and figure.get_figheight() <= style.TALLEST
    assert min(text.get_fontsize() for text in figure.findobj(Text)) >= 6
    inside = figure.bbox.padded(3)
    for label in [*figure.legends[0].get_texts(), *figure.texts]:
        box = label.get_window_extent()
        assert inside.x0 <= box.x0 and box.x1 <= inside.x1
    for axes in figure.axes:
        names_under = [name.get_window_extent() for name in axes.get_xticklabels()]
        assert all(one.x1 <= other.x0 + 1 for one, other in pairwise(names_under))
        assert not axes.axison or axes.get_window_extent().height > 10
    if kind != "lines":
        labels = [*figure.axes[0].get_xticklabels(), *figure.axes[0].get_yticklabels()]
        shown = {label.get_text().replace("\n", " ") for label in labels}
        assert {*names} <= shown, "under the groups, or beside them"


def test_a_label_says_percent():
    for y, end in (("share (%)", "80"), ("share", "0.8")):
        figure = figures.facets(FRAME, "estimator", kind="points", y=y, limits=(0, 1))
        axis = figure.axes[0].yaxis
        figure.draw_without_rendering()
        assert end in [label.get_text() for label in axis.get_ticklabels()]


# ---- trees ---------------------------------------------------------------------------------------


def tree_of(tree, accepted):
    """Data of a drawn tree with made-up probabilities."""
    nodes = np.arange(tree.size + 1)
    odds = np.linspace(0.9, 0.1, len(nodes))
    labels = [f" t{node}" for node in nodes]
    return drawings.tree_frame(tree, labels, odds, odds / 2, np.isin(nodes, [0, *accepted]))


def test_drawn_tree_shows_every_token_with_its_probabilities():
    frame = tree_of(static_tree(3, 2, 8), [1, 3, 8])
    with figures.styled():
        axes = drawings.draw_tree(frame).axes[0]
    texts = [f"␣t{row.node}\nq {row.q:.2f}  p {row.p:.2f}" for row in frame[1:].itertuples()]
    assert [text.get_text() for text in axes.texts] == ["␣t0", *texts]
    thick = [line.get_linewidth() > 2 for line in axes.lines]
    assert thick == frame["accepted"][1:].tolist()
    heights = [text.get_position()[1] for text in axes.texts]
    assert heights[1] < heights[2] and heights[3] < heights[4] and axes.yaxis_inverted(), (
        "the draft's best stands on top"
    )


@pytest.mark.parametrize("width", [style.ONE_COLUMN, style.TWO_COLUMNS])
def test_of_a_large_tree_the_accepted_and_likeliest_tokens_are_drawn(width):
    frame = tree_of(static_tree(12, 2, 60), [2, 5])
    with figures.styled(width):
        figure = drawings.draw_tree(frame)
    texts = [text.get_text() for text in figure.axes[0].texts]
    drawn = [int(re.search(r"t(\d+)", text)[1]) for text in texts]
    assert {0, 2, 5} < {*drawn} and len(drawn) == drawings.MOST_NODES + 1
    assert {*frame["parent"][drawn]} <= {*drawn}, "no line from nowhere"
    assert "16 of 60 tokens are drawn" in figure.axes[0].get_xlabel()


# ---- tables --------------------------------------------------------------------------------------


def test_a_table_is_numbers_to_compute_with_and_cells_to_print(place):
    cells = pd.DataFrame({"a_b": ["$5 & 3 %", "−1"], "code": ["0.70 [0.60, 0.75]", None]})
    caption = "Share of `hit[1]` (95 %)."
    tex = tables.export_table(FRAME, place, "shares", caption, cells=cells)
    assert_frame_equal(pd.read_csv(place / "shares.csv"), FRAME)
    text = tex.read_text(encoding="utf-8")
    for part in (
        r"\caption{Share of hit[1] (95 \%).}",
        r"\label{tab:02-shares}",
        r"\$5 \& 3 \% & 0.70 [0.60, 0.75] \\",
        r"$-$1 & -- \\",
        r"\begin{tabular}{lr}",  # a column of numbers, also of missing ones, is on the right
    ):
        assert text.count(part) == 1, part
    text = tables.export_table(FRAME, place, "wide", caption, is_wide=True).read_text("utf-8")
    for part in (r"\begin{table*}", "alpha & code & 0.700 & 0.600 & 0.750"):
        assert part in text
    long = pd.concat([FRAME] * 4)  # 16 rows
    text = tables.export_table(long, place, "long", caption).read_text("utf-8")
    assert r"\begin{longtable}{llrrr}" in text and r"\begin{table}" not in text
    text = tables.export_table(long, place, "long", caption, most=12).read_text("utf-8")
    assert text.startswith("% 12 of 16 rows; all are in long.csv\n\\begin{table}")
    assert text.count("\\\\\n") == 1 + 12
    assert len(pd.read_csv(place / "long.csv")) == 16


def test_cells_of_a_paper_are_those_of_the_page_and_compile(tmp_path):
    frame = pd.DataFrame(
        {
            "set": ["[γ ± 1]", "* β_2^3", "5 % of #1 & $2"],
            "p_holm": [0.0, np.nan, 1.0],
            "gain": ["1.35x [1.32, 1.37]", "−0.30 [−0.4, 0]", "undefined"],
        }
    )
    inputs = ""
    for name, is_wide in {"plain": False, "wide": True}.items():
        tables.export_table(frame, tmp_path, name, caption="γ of _all_, 5 %", is_wide=is_wide)
        inputs += f"\\input{{{name}}}"
    text = (tmp_path / "wide.tex").read_text("utf-8")
    for part in (
        r"\begin{tabular}{lrr}",
        r"{[}$\gamma$ $\pm$ 1] & $<$ 0.001 & 1.35$\times$ [1.32, 1.37] \\",
        r"{*} $\beta$\_2\textasciicircum 3 & -- & $-$0.30 [$-$0.4, 0] \\",
        r"5 \% of \#1 \& \$2 & 1.000 & undefined \\",
    ):
        assert part in text
    head = r"\documentclass[twocolumn]{article}\usepackage{booktabs}\begin{document}"
    (tmp_path / "paper.tex").write_text(head + inputs + r"\end{document}")
    if shutil.which("pdflatex"):
        latex = ["pdflatex", "-halt-on-error", "-no-shell-escape", "paper.tex"]
        subprocess.run(latex, cwd=tmp_path, check=True, capture_output=True)
