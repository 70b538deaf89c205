"""What every notebook needs and no analysis does: a quiet start, where figures go, computed text,
the way in on Colab and Kaggle.

Imports at the top are the standard library's (and packaging): a hosted notebook imports this module
before the rest is installed.
"""

import json
import os
import subprocess
import sys
import tomllib
import warnings
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from speclab.profiles import Profile
    from speclab.show.estimates import Estimates


# what a notebook needs at least: domains, prompts of each, new tokens; the others work with any
# (all domains: the paper's tables name them; three: it decodes two prompts of each for an interval)
NEEDS = {
    "02": (3, 5, 2),
    "03": (4, 5, 2),
    "04": (4, 5, 2),
    "05": (4, 5, 2),
    "06": (2, 5, 2),
    "07": (1, 5, 16),
    "08": (3, 5, 2),
    "09": (3, 5, 2),
    "10": (2, 5, 2),
    "11": (4, 5, 2),
}


@dataclass(frozen=True)
class Context:
    """One notebook's run: its two-digit `number`, the `profile`, and the folder its figures and
    tables go to.
    """

    number: str
    profile: "Profile"
    figures: Path

    def save(self, figure: "Figure", slug: str, caption: str = "") -> None:
        """Write NN_slug.png and .pdf into the figures folder and show the picture as it was
        written, its caption under it.

        caption: one sentence that says what is drawn and what is seen; its numbers are computed. It
        is also the picture's text for those who cannot see it, and stands in the report
        (NN_captions.json).
        """
        from IPython.display import Image, Markdown, display

        from speclab.show import figures

        inches = figure.get_size_inches()[0]
        path = figures.save(figure, f"{self.number}_{slug}", self.figures)
        text = caption or slug.replace("-", " ")
        display(Image(path.read_bytes(), width=round(110 * inches), alt=text))
        if caption:
            display(Markdown(f"*{caption}*"))
            self._keep_caption(slug, caption)

    def _keep_caption(self, slug: str, caption: str) -> None:
        from speclab.plain import read_json

        path = self.figures / f"{self.number}_captions.json"
        known = read_json(path, "remove it") if path.is_file() else {}
        kept = dict(sorted((known | {slug: caption}).items()))
        path.write_text(
            json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )

    def plot(
        self, estimates: "Estimates", x: str, slug: str, caption: str, **options: Any
    ) -> None:
        """Draw estimates by `x` with their intervals and save the figure; options as of
        `figures.facets` (hue, rows, columns, kind, …).
        """
        from speclab.show import figures

        self.save(figures.facets(estimates.frame, x, **options), slug, caption)

    def table(
        self,
        table: "pd.DataFrame | Estimates",
        slug: str,
        digits: int = 3,
        rows: int = 12,
    ) -> None:
        """Export a table (NN_slug.csv and .tex) and show its first `rows` rows with `digits`
        decimals.
        """
        self.export(table, slug)
        frame = getattr(table, "frame", table)
        show_table(frame.head(rows), digits)
        if len(frame) > rows:
            where = f"{self.number}_{slug}.csv"
            say(f"*{rows} of {len(frame)} rows; all of them are in `{where}`.*")

    def export(self, table: "pd.DataFrame | Estimates", slug: str) -> None:
        """Write NN_slug.csv and .tex into the figures folder without showing anything."""
        from speclab.show import tables

        frame = getattr(table, "frame", table)
        tables.export(frame, self.figures, f"{self.number}_{slug}")

    def say(self, text: str) -> None:
        """Show a computed sentence (Markdown): numbers in a notebook's text come from here and are
        never typed.
        """
        say(text)

    def record(self, **numbers: float | int | str) -> None:
        """Write the notebook's main numbers to NN_numbers.json in the figures folder, floats to 4
        significant digits.
        """
        rounded = {
            name: float(f"{value:.4g}") if isinstance(value, float) else value
            for name, value in numbers.items()
        }
        self.figures.mkdir(parents=True, exist_ok=True)
        (self.figures / f"{self.number}_numbers.json").write_text(
            json.dumps(rounded, indent=1) + "\n", encoding="utf-8"
        )


def start(
    notebook: str, profile: str, overrides: dict | None = None, judged: int = 0
) -> Context:
    """The context of the notebook called `NN_name` on a profile (name or file) with `overrides` of
    its parameters.

    judged: prompts a domain that its intervals are made of; 0: all of the profile's. Also quiets
    the libraries' notices, limits threads and sets the style of figures. Figures go to
    `figures/<profile>` under SPECLAB_OUT (default: the repository). Raises ValueError for a name
    without a number, an unknown profile or parameter, or where `check_enough` says so.
    """
    from speclab.profiles import ROOT, load_profile
    from speclab.show import figures

    if not (notebook[:2].isdigit() and notebook[2:3] == "_"):
        raise ValueError(
            f"notebook={notebook!r}: a notebook is called NN_name, as 02_gamma_sweep"
        )
    settings = load_profile(profile, overrides)
    out = Path(os.environ.get("SPECLAB_OUT") or ROOT)
    if out.exists() and not out.is_dir():
        raise ValueError(f"SPECLAB_OUT={out}: no folder; name one, or unset it")
    quiet()
    limit_threads()
    _few_prompts(check_enough(notebook, settings, judged))
    _hosted(settings)
    figures.use_style()
    return Context(
        notebook[:2],
        settings,
        out / "figures" / settings.name,
    )


def _hosted(profile: "Profile") -> None:
    """On Kaggle what is attached: models, data sets, saved runs.

    In a kit that the bootstrap cell fetched: GPTQModel, if it is needed.
    """
    from speclab.ops import hosted
    from speclab.profiles import ROOT

    if hosted.MOUNTED.is_dir():
        found, saved = hosted.attach(profile), hosted.restore()
        print(
            f"attached: {', '.join([*found, *saved]) or 'nothing that this profile needs'}"
        )
    if ROOT.name == "speclab-kit" and "quantization_config" in profile.notes.get(
        "target_config", {}
    ):
        install_missing(ROOT, "gptq")


def check_enough(notebook: str, profile: "Profile", judged: int = 0) -> int:
    """The prompts a domain that a notebook's intervals are made of (judged, or all of the
    profile's). ValueError, before anything is recorded, where domains, prompts or tokens are too
    few for it.
    """
    count = profile.prompts_per_domain
    count = min(judged or count, count)
    had = len(profile.domains), count, profile.max_new_tokens
    numbers = [f"{number:02d}" for number in range(13)]
    fit = [n for n in numbers if all(map(int.__ge__, had, NEEDS.get(n, (1, 1, 1))))]
    if notebook[:2] in NEEDS and notebook[:2] not in fit:
        words = "{} domains, {} prompts a domain and {} new tokens"
        raise ValueError(
            f"{notebook} needs {words.format(*NEEDS[notebook[:2]])} or more, and has "
            f"{words.format(*had)} (domains, prompts_per_domain, judged_prompts_per_domain, "
            f"max_new_tokens); so few are enough for the notebooks {', '.join(fit)}"
        )
    return count


def _few_prompts(count: int) -> None:
    """Says what intervals are worth where there are few prompts a domain: by the simulation of
    notebook 03 (data/coverage).
    """
    import pandas as pd

    from speclab import stats
    from speclab.profiles import ROOT

    if count >= stats.FEW_PROMPTS:
        return
    found = pd.read_csv(ROOT / "data" / "coverage" / "coverage.csv")
    near = max(n for n in found["n_prompts"] if n <= max(count, stats.MIN_PROMPTS))
    rows = found[(found["n_prompts"] == near) & found["used"]]
    least, most = 100 * rows["coverage"].min(), 100 * rows["coverage"].max()
    say(
        f"**{count} prompts a domain are few**: intervals say 95 % and cover less. With {near} "
        f"they held the truth in {least:.0f} to {most:.0f} % of simulated studies (notebook 03); "
        f"below {stats.MIN_PROMPTS} there are none. Record {stats.FEW_PROMPTS} or more."
    )


def is_open() -> bool:
    """Whether somebody has the notebook open: `make reproduce` runs it headless, with SPECLAB_OUT
    set, and there pictures stand for what wants a hand.
    """
    return not os.environ.get("SPECLAB_OUT")


def quiet() -> None:
    """Silence notices that no reader of a notebook can act on; errors stay."""
    import logging

    os.environ |= {
        "TOKENIZERS_PARALLELISM": "false",
        "TRANSFORMERS_VERBOSITY": "error",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
    for name in (
        "transformers",
        "datasets",
        "huggingface_hub",
        "accelerate",
        "gptqmodel",
        "torchao",
        "torch.utils._pytree",
    ):
        logging.getLogger(name).setLevel(logging.ERROR)
    for category in (FutureWarning, DeprecationWarning):
        warnings.simplefilter("ignore", category)


def cores_of_this_process() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def limit_threads() -> int:
    """Threads for numerical libraries: OMP_NUM_THREADS if set, else one core fewer than this
    process may use, 1 to 8.

    With as many threads as cores one busy neighbour makes every parallel step wait for it: ten
    times slower was measured on two cores.
    """
    wanted = min(max(cores_of_this_process() - 1, 1), 8)
    text = os.environ.get("OMP_NUM_THREADS") or str(wanted)
    first = text.split(",")[0].strip()
    if not first.isdecimal() or int(first) < 1:
        raise ValueError(f"OMP_NUM_THREADS={text!r}: a whole number from 1 is needed")
    count = int(first)
    os.environ["OMP_NUM_THREADS"] = text
    if "torch" in sys.modules:  # it read the variable when it was imported
        sys.modules["torch"].set_num_threads(count)
    return count


def say(text: str) -> None:
    """Show a computed sentence (Markdown): numbers in a notebook's text come from here and are
    never typed.
    """
    from IPython.display import Markdown, display

    display(Markdown(text))


def show_table(frame: "pd.DataFrame", digits: int = 3) -> None:
    """Show a table with `digits` decimals; a plain 0, 1, 2, … index is left out and missing numbers
    are blank.
    """
    from IPython.display import HTML, display

    plain = frame.index.name is None and frame.index.equals(
        frame.reset_index(drop=True).index
    )
    display(
        HTML(
            frame.to_html(
                index=not plain,
                float_format=f"{{:.{digits}f}}".format,
                na_rep="",
                border=0,
            )
        )
    )


def _installed(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(
            metadata.version(requirement.name), prereleases=True
        )
    except metadata.PackageNotFoundError:
        return False


def _pip(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", *arguments], check=True
    )


def install_missing(root: Path, extra: str | None = None) -> list[str]:
    """pip-install what pyproject.toml under `root` asks for and this Python lacks; returns the
    requirements that were installed.

    For hosted notebooks: torch and numpy stay as the platform has them wherever they are within the
    ranges. extra: an optional set, whose own needs are installed but for torch and numpy (GPTQModel
    asks for one exact numpy, and works with others).
    """
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    wanted, kept = (
        project["optional-dependencies"][extra] if extra else project["dependencies"],
        [],
    )
    for need in map(Requirement, project["dependencies"]):
        if need.name in ("torch", "numpy") and _installed(need):
            kept.append(f"{need.name}=={metadata.version(need.name)}")
    missing = [text for text in wanted if not _installed(Requirement(text))]
    if missing:
        _pip(*(["--no-deps"] if extra else []), *missing, *([] if extra else kept))
    if extra and missing:
        needs = [
            Requirement(text)
            for name in missing
            for text in metadata.requires(Requirement(name).name) or []
        ]
        needs = [
            n
            for n in needs
            if n.name not in ("torch", "numpy")
            and (n.marker is None or n.marker.evaluate({"extra": ""}))
        ]
        if more := sorted(
            {f"{n.name}{n.specifier}" for n in needs if not _installed(n)}
        ):
            _pip(*more, *kept)
    return missing
