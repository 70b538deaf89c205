"""The house style of the figures: sizes in inches, text, colours, markers and line styles.

This module has constants only, and only figures read them.

The colours are Okabe and Ito's (jfly.uni-koeln.de/color), one of them darker, and four of Paul
Tol's. No two of the twelve looks share a colour, a marker (filled or hollow) or a line style, so
figures can also be read in grey.
"""

from typing import Any

ONE_COLUMN, TWO_COLUMNS = 3.4, 7.0
NARROW = 5.0  # below this width panels are stacked
TALLEST = 8.0
FONT, MONOSPACED = "DejaVu Sans", "DejaVu Sans Mono"
TEXT, SMALL_TEXT = 8.0, 7.0  # points; SMALL_TEXT in a narrow figure
STAMP: dict[str, Any] = {  # a warning across a figure
    "rotation": 20,
    "ha": "center",
    "va": "center",
    "size": "xx-large",
    "weight": "bold",
    "color": "#882255",
    "alpha": 0.35,
}


def _look(color: str, marker: str, linestyle: Any) -> dict[str, Any]:
    return {"color": color, "marker": marker, "linestyle": linestyle}


DOMAIN_LOOKS = (  # for the kit's own domains, and the first four of any other domains
    _look("#0072B2", "o", "-"),
    _look("#D55E00", "s", "--"),
    _look("#009E73", "D", "-."),
    _look("#B5478A", "^", ":"),
)
OTHER_LOOKS = (
    _look("#444444", "P", (0, (8, 2))),
    _look("#E69F00", "v", (0, (4, 1, 1, 1))),
    _look("#56B4E9", "X", (0, (1, 1))),
    _look("#8C6D1F", "s", (0, (2, 1))) | {"markerfacecolor": "white"},
    _look("#332288", "d", (0, (6, 1, 1, 1, 1, 1))),
    _look("#882255", "p", (0, (3, 3))),
    _look("#44AA99", "h", (0, (8, 2, 2, 2))),
    _look("#7F7F7F", "+", (0, (1, 3))),
)
OF_TOKENS = OTHER_LOOKS[1:3]  # the colours of recovered and bonus tokens: used last
CODE, MATH, REASONING, CHAT = DOMAIN_LOOKS
LOOKS = (*DOMAIN_LOOKS, *OTHER_LOOKS)
_MEASURED = _look("#332288", "o", "-")
SERIES = {  # fixed looks: the kit's domains, SpecDecode-Bench's prompt sets, the paper's numbers,
    # measured and predicted numbers, and what others are compared with
    "code": CODE,
    "math": MATH,
    "reasoning": REASONING,
    "chat": CHAT,
    "instructcoder": CODE,
    "gsm8k": MATH,
    "cnn": REASONING,
    "sharegpt": CHAT,
    "published": _look("black", "x", (0, (1, 2))),
    "measured": _MEASURED,
    "predicted": _MEASURED | {"markerfacecolor": "white"},
    "expanded percentile": CODE,
    "calibrated": _look("black", "", "-") | {"linewidth": 0.7},
    "expected sampling error": _look("#AAAAAA", "", "-") | {"linewidth": 3},
}
STYLE = {
    "axes.titlesize": "medium",
    "figure.titlesize": "medium",
    "figure.labelsize": "medium",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.dpi": 110,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "speclab",
    "text.parse_math": False,
}
