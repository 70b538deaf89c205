"""The token view: every token once, with its kind; safe HTML; boxes that do not overlap."""

import html
import itertools
import re

import matplotlib

matplotlib.use("Agg")

from matplotlib.backends.backend_agg import FigureCanvasAgg

from speclab.decode import Step
from speclab.show import figures, pictures

STRINGS = [
    " the",
    "cat",
    "\n",
    "<script>alert('x')</script>",
    '\t&"',
    "",
    "\u202eabc\x00",
    "日本",
    "x" * 200,
    ".",
]
STEPS = [
    Step((0, 1, 2), 2, 4, "recovered"),
    Step((3, 4), 1, 1, "bonus"),
    Step((5, 6, 7), 3, 4, "cut"),
    Step((8,), 0, 4, "recovered"),
    Step((9,), 1, 1, "cut"),
]


def test_every_token_has_its_kind_block_and_place():
    found = pictures.pieces(STEPS, STRINGS)
    assert [p.token for p in found] == list(range(10)) and [
        p.text for p in found
    ] == STRINGS
    kinds = (
        ["accepted"] * 2
        + ["recovered", "accepted", "bonus"]
        + ["accepted"] * 3
        + ["recovered", "accepted"]
    )
    assert [p.kind for p in found] == kinds, "a cut step ends on an accepted token"
    spots = "0.0 0.1 0.2 1.0 1.1 2.0 2.1 2.2 3.0 4.0"
    assert [f"{p.block}.{p.place}" for p in found] == spots.split()
    assert pictures.counts(found) == {"accepted": 7, "recovered": 2, "bonus": 1}


def test_html_is_escaped_and_says_every_token():
    page = pictures.as_html(STEPS, STRINGS)
    assert set(re.findall(r"<(\w+)", page)) == {"div", "span", "br"}, "nothing is run"
    assert not any(mark in page for mark in ("://", "\u202e", "\x00"))
    read = html.unescape(re.sub(r"<[^>]*>", "", page))
    for said in ("␣the", "⏎", '⇥&"', "<script>alert('x')</script>", "accepted 7"):
        assert said in read
    assert "10 tokens in 5 target passes (2.00 tokens per pass)" in read
    titles = re.findall(r' title="([^"]*)"', page)
    assert titles[2] == "block 1, recovered; 2 of 4 drafted tokens accepted; id 2"
    assert len(titles) == 10


def test_boxes_stand_in_order_within_the_lines_and_apart():
    plan = pictures.layout(STEPS * 6, STRINGS, columns=40)
    for box in plan.boxes:
        assert box.column >= 0 and box.column + box.width <= 40
        assert box.width >= 1 + (len(box.text) > 0)
    for one, two in zip(plan.boxes, plan.boxes[1:], strict=False):
        gap = 1 if two.piece.place == 0 and two.column else 0
        assert (two.row, two.column) == (one.row + 1, 0) or (
            two.row == one.row and two.column == one.column + one.width + gap
        )
        assert not one.piece.text.endswith("\n") or two.row == one.row + 1, (
            "a line end in the text is one in the picture"
        )
    cut, wide = plan.boxes[8], plan.boxes[7]
    assert cut.text == "x" * 38 + "…" and cut.width == 40 and wide.width == 5, (
        "cut to a line; East Asian characters take two cells"
    )


def test_the_picture_has_a_box_a_text_and_a_block_bar_each(tmp_path):
    figures.use_style()
    steps = [Step((0, 1, 9), 2, 4, "recovered"), Step((3, 4), 1, 1, "bonus")]
    figure = figures.draw_tokens(pictures.layout(steps, STRINGS))
    axes = figure.axes[0]
    assert [t.get_text() for t in axes.texts] == [
        "␣the",
        "cat",
        ".",
        "<script>alert('x')</script>",
        '⇥&"',
    ]
    boxes = [text.get_bbox_patch() for text in axes.texts]
    lines = ["solid"] * 4 + ["dashed"]
    assert [box.get_linestyle() for box in boxes] == lines and len(axes.lines) == 2
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    ends = [box.get_window_extent(renderer) for box in boxes]
    for one, two in itertools.pairwise(ends):
        assert one.x1 <= two.x0 or one.y0 > two.y1, "no box on another"
    assert figures.save(figure, "01_tokens", tmp_path).exists()
