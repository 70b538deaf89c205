"""The start and the end of every notebook: a quiet start, the folder of its figures, computed text,
the answer.

It imports only the standard library at the top, so that every verb can call `quiet` first.
"""

import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from speclab.estimates import Estimates
    from speclab.study.profiles import Profile


OF_THE_PAPER = ("11",)  # notebooks that need the paper's domains, by their names
# all other notebooks have intervals, which need stats.MIN_PROMPTS prompts in a domain
WITHOUT_INTERVALS = ("00", "01", "13", "14")
LEAST_TOKENS = {"07": 16}  # new tokens; the others of them need 2
BY_POSITION = ("07",)  # notebooks that correct a draft's ranks, one rank per position

OF_THE_KIT = ("00", "13", "14")  # their own example, public runs, the shipped log

# the folder of figures of notebooks that read public runs, whatever the profile
OWN_PAIR = {"13": "public"}
ANSWER = "answer"  # the place of a notebook's first output, filled at its end
PENDING, ANSWERED = "*The answer is computed at the end.*", "**Answer.** "  # how that output begins


class LeftOut(RuntimeError):
    """A notebook has nothing to show for this study. The message says what it needs."""


@dataclass(frozen=True)
class Context:
    """One run of a notebook: the `profile`, the folder of its figures and tables, the `names` of
    the study's domains, prompt sets and prompts, its tables by slug, and its main numbers.
    """

    profile: "Profile"
    figures: Path
    names: tuple[str, ...] = ()
    values: "dict[str, pd.DataFrame]" = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)

    def draw(
        self,
        function: "Callable[..., Figure]",
        data: "pd.DataFrame | Estimates",
        slug: str,
        caption: str,
        title: str = "",
        stamp: str = "",
        **options: Any,
    ) -> None:
        """Draw `data` by a function that returns a Figure (`figures.subplots`), and show the
        picture, its title above and its caption under it.

        Writes slug.csv (the data) and the pictures (`figure_files.save_figure`). title: what the
        figure shows; caption: how to read it. The caption is also the picture's text for those who
        cannot see it, and stands in the report (captions.json). stamp: a warning that is printed
        across the figure.
        """
        from IPython.display import Image, display

        from speclab.show.figure_files import save_figure

        frame = getattr(data, "frame", data)
        self._claim(slug, frame)
        drawing = partial(function, frame, **options)
        save_figure(drawing, frame, self.figures, slug, caption, title, stamp, self.profile.font)
        image = Image(filename=self.figures / f"{slug}.png", width=770, alt=caption)
        display(image, metadata={"figure": slug})  # its pages show the file
        self.say(f"*{caption}*")

    def plot(
        self,
        estimates: "pd.DataFrame | Estimates",
        x: str,
        slug: str,
        caption: str,
        **options: Any,
    ) -> None:
        """Draw estimates by `x` with their intervals; options as of `figures.facets` (hue, kind,
        columns, y, limits, reference, …), and `title` and `stamp` of `draw`.
        """
        from speclab.show import figures

        self.draw(figures.facets, estimates, slug, caption, x=x, **options)

    def strips(
        self,
        panel: "Mapping[str, tuple[pd.DataFrame, pd.DataFrame]]",
        value: str,
        label: str,
        slug: str,
        caption: str,
        title: str = "",
    ) -> None:
        """Draw a dot per prompt and each domain's own number. panel: by its title the prompts, with
        the column `value`, and the estimates by domain.
        """
        import pandas as pd

        from speclab.show import figures

        [(name, (prompts, numbers))] = panel.items()
        dots = prompts[["domain", "prompt_id"]].assign(estimate=prompts[value])
        rows = pd.concat([numbers.assign(prompt_id=""), dots], ignore_index=True)
        rows = rows.assign(panel=name)[["panel", "domain", "prompt_id", "estimate", "low", "high"]]
        self.draw(figures.strips, rows, slug, caption, title, label=label)

    def table(
        self,
        table: "pd.DataFrame | Estimates",
        slug: str,
        rows: str | list[str] = "",
        columns: str = "",
        digits: int = 3,
        most: int = 12,
        cells: "pd.DataFrame | None" = None,
        caption: str = "",
        is_wide: bool = False,
        intervals: Collection[str] | None = None,
    ) -> None:
        """Export a table (slug.csv), and show its first `most` rows with `digits` decimals, on the
        page and in slug.tex.

        rows, columns: keys of Estimates. Both then have a cell with an interval for each row and
        column, or for the columns named in `intervals` (`Estimates.wide`). cells: any other table
        that they show instead.
        caption: a sentence for the .tex and the site; is_wide: as of `tables.export_table`.
        """
        if rows:
            cells = table.wide(rows, columns, intervals)
        caption = caption or slug.replace("-", " ")
        shown = getattr(table, "frame", table) if cells is None else cells
        self.export(table, slug, shown, caption, digits, is_wide, most)
        show_table(shown.head(most), digits, caption)
        if len(shown) > most:
            whole = f"`{self.figures.name}/{slug}.csv`"
            self.say(f"*{most} of {len(shown)} rows. All rows are in {whole}.*")

    def export(
        self,
        table: "pd.DataFrame | Estimates",
        slug: str,
        cells: "pd.DataFrame | None" = None,
        caption: str = "",
        digits: int = 3,
        is_wide: bool = False,
        most: int | None = None,
    ) -> None:
        """Write slug.csv (numbers) into the figures folder without showing anything, and slug.tex
        if there is a caption; cells, most and is_wide as of `table`. A profile with `wide_tables`
        makes all tables wide.
        """
        from speclab.show import tables

        frame = getattr(table, "frame", table)
        self._claim(slug, frame)
        if not caption:
            tables.write_values(frame, self.figures, slug)
            return
        if hasattr(frame, "low"):  # a page says it at its top
            caption = f"{caption.rstrip('.')}. Intervals: {100 * self.profile.level:g} %."
        is_wide = is_wide or self.profile.wide_tables
        tables.export_table(frame, self.figures, slug, caption, digits, cells, is_wide, most)

    def _claim(self, slug: str, frame: "pd.DataFrame") -> None:
        """ValueError if slug.csv already holds other rows: a figure and a table with the same name
        need the same rows. Not in an open notebook, where a cell may run again.
        """
        if not frame.equals(self.values.setdefault(slug, frame)) and not is_open():
            raise ValueError(f"{slug}.csv already holds another table: choose another name")

    def say(self, text: str) -> None:
        """Show a computed sentence (Markdown). Every number in a notebook's text is computed."""
        show_text(self._with_names(text))

    def _with_names(self, text: str) -> str:
        """A sentence in Markdown that shows the study's names as they are, also <b>, $x$ or *."""
        from speclab.show import tables

        longest_first = sorted(self.names, key=len, reverse=True)
        found = "|".join(["(`[^`]*`)", *map(re.escape, longest_first)])
        # code stays as it is
        return re.sub(found, lambda one: one[1] or tables.format_sentence(one[0]), text)

    def compares(self, domains: Sequence[str]) -> bool:
        """Whether there are two domains or more to compare; if not, says so. domains: those with
        enough prompts (`stats.judged_domains`).
        """
        if len(domains) < 2:
            self.say(f"Only {domains[0]} has 5 prompts or more, so no domains are compared.")
        return len(domains) > 1

    def leave_out(self, reason: str) -> NoReturn:
        """End a notebook that has nothing to show for this study. reason: what it needs, as 'needs
        two domains with five prompts or more'. `make reproduce` prints it in one line.
        """
        raise LeftOut(f"{self.figures.name} {reason}")

    def record(self, **numbers: float | int | str) -> None:
        """Write the notebook's main numbers to numbers.json in the figures folder, floats to 4
        significant digits.
        """
        for name, value in numbers.items():
            if isinstance(value, float):
                value = float(f"{value:.4g}")
            self.numbers[name] = value
        self.figures.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.numbers, indent=1, ensure_ascii=False) + "\n"
        (self.figures / "numbers.json").write_text(text, encoding="utf-8")

    def answer(self, text: str) -> None:
        """Show the answer to the notebook's question: one to three computed sentences, the first
        with the main number; at most 40 words and 4 numbers (tests/test_prose.py).

        The answer replaces the notebook's first output. numbers.json keeps it, and the report and
        README's table show it.
        """
        from IPython.display import Markdown, update_display

        answer = self._with_names(text)
        update_display(Markdown(f"{ANSWERED}{answer}"), display_id=ANSWER)
        self.record(answer=answer)


def start(
    notebook: str, profile: str, overrides: dict | str | None = None, judged: int = 0
) -> Context:
    """The context of the notebook `NN_name` on a profile (name or file) with `overrides` of the
    profile's parameters.

    judged: prompts per domain of its intervals; 0: all of the profile's. Silences the
    libraries' notices and limits threads. Figures go to `figures/<profile>/NN` (`drawn_in`) under
    SPECLAB_OUT (default: `place.OUT`). ValueError for an unknown profile or parameter, or if
    the profile `lacks` something.
    """
    from IPython.display import Markdown, display

    from speclab import stats
    from speclab.place import OUT, folder_of
    from speclab.study.profiles import load_profile
    from speclab.study.prompts import HUB_SETS
    from speclab.study.runs import profile_prompts, sets_asked

    settings = load_profile(profile, overrides)
    out = folder_of("SPECLAB_OUT") or OUT
    quiet()
    limit_threads()
    if reason := lacks(notebook, settings, judged):
        raise ValueError(f"{notebook} {reason}")
    stats.LEVEL = settings.level
    # the head of the page: a place for the answer, the settings, warnings
    display(Markdown(PENDING), display_id=ANSWER)
    sizes = judged_sizes(settings, judged)
    if notebook[:2] not in WITHOUT_INTERVALS:
        show_text(settings_of(settings))
        few_prompts(sizes)
    if "quantization_config" in settings.notes.target_config and find_spec("gptqmodel") is None:
        print(
            f"GPTQModel is not installed, and the target of {settings.name} needs it. Run "
            "`python -m speclab hosted install --gptq` and restart the session."
        )
    # the study's names, which sentences show as they are
    sets = [Path(source).stem for source in sets_asked(settings, sizes)]
    own = () if settings.prompts in HUB_SETS else profile_prompts(settings)
    names = (*sizes, *sets, *(prompt.prompt_id for prompt in own))
    return Context(settings, drawn_in(out / "figures" / settings.name, notebook), names)


def drawn_in(figures: Path, notebook: str) -> Path:
    """The folder of a notebook's figures and tables; figures: the folder of a profile's."""
    number = notebook[:2]
    return figures.parent / OWN_PAIR.get(number, figures.name) / number


def judged_sizes(profile: "Profile", judged: int = 0) -> dict[str, int]:
    """The number of prompts per domain that a notebook judges: `judged`, or all of the
    profile's.
    """
    from speclab.study.runs import sizes_of

    return {domain: min(judged or size, size) for domain, size in sizes_of(profile).items()}


def lacks(notebook: str, profile: "Profile", judged: int = 0) -> str:
    """What a profile lacks that a notebook needs, and what to do, as 'needs …'; "": nothing.

    It checks before anything is recorded: too few prompts or tokens, other domains than the
    paper's, or a trained head where a block's ranks must not depend on where it began.
    """
    from speclab.models.folder import ModelFolder
    from speclab.plain import DOMAINS
    from speclab.stats import MIN_PROMPTS

    number = notebook[:2]
    sizes = judged_sizes(profile, judged)
    if number in WITHOUT_INTERVALS:
        return ""
    # prompts: which domains, how many, how long their texts are
    if number in OF_THE_PAPER and set(sizes) != set(DOMAINS):
        return "needs the domains of the paper's claims, and these prompts have others"
    for name, least, count in (
        ("prompts in a domain", MIN_PROMPTS, max(sizes.values())),
        ("max_new_tokens", LEAST_TOKENS.get(number, 2), profile.max_new_tokens),
    ):
        if count < least:
            return f"needs at least {least} {name} and has {count}"
    # the draft
    draft = ModelFolder.here(profile.draft) if number in BY_POSITION else None
    if draft and draft.is_head:
        return (
            f"needs a draft with one rank per position. {profile.draft.path} is a trained head, "
            "whose ranks depend on where a block begins. Run notebooks 02, 04, 08 or 10"
        )
    return ""


def unchanged_by(profile: "Profile", notebook: str, given: Mapping) -> str:
    """Why a study with its own prompts leaves a notebook out unless it is named: the study changes
    nothing in it. "" for the others. given: the parameters that the study or the call sets.
    """
    from speclab.study.prompts import SETS

    number = notebook[:2]
    if given or number not in OF_THE_KIT or profile.prompts in SETS:
        return ""
    return f'shows the same in every study (to run it: NOTEBOOKS="{number}")'


def settings_of(profile: "Profile") -> str:
    """A line on how the texts were decoded, and what the intervals are."""
    return (
        f"*Greedy texts (T = 0); where sampled texts are used, {profile.sampled_as}. Intervals: "
        f"{100 * profile.level:g} % over prompts.*"
    )


def few_prompts(sizes: Mapping[str, int]) -> None:
    """Show a warning about the intervals of domains with few prompts, unless all have enough.
    sizes: prompts by domain.
    """
    from speclab import stats
    from speclab.estimates import named
    from speclab.show.tables import format_sentence

    few = [
        f"{format_sentence(name)} {size}"
        for name, size in sizes.items()
        if size < stats.FEW_PROMPTS
    ]
    if few:
        show_text(
            f"**Few prompts**: {named(few)}. With fewer than {stats.FEW_PROMPTS} prompts per "
            "domain, intervals are less reliable (notebook 12), and with fewer than "
            f"{stats.MIN_PROMPTS} there are none."
        )


def is_open() -> bool:
    """Whether a reader has the notebook open. `make reproduce` runs it headless, with SPECLAB_OUT
    set, and shows pictures instead of widgets.
    """
    return not os.environ.get("SPECLAB_OUT")


def quiet() -> None:
    """Silence notices that no reader can act on; errors stay."""
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
    of_process = getattr(os, "sched_getaffinity", None)  # macOS and Windows lack it
    return len(of_process(0)) if of_process else os.cpu_count() or 1


def limit_threads() -> int:
    """Threads for numerical libraries: OMP_NUM_THREADS if set, else one core fewer than this
    process may use, 1 to 8.

    With as many threads as cores one busy neighbour makes every parallel step wait for it: ten
    times slower was measured on two cores.
    """
    wanted = min(max(cores_of_this_process() - 1, 1), 8)
    count = int(os.environ.get("OMP_NUM_THREADS") or wanted)
    os.environ["OMP_NUM_THREADS"] = str(count)
    if "torch" in sys.modules:  # it read the variable when it was imported
        sys.modules["torch"].set_num_threads(count)
    return count


def formats(pair: Mapping[str, Mapping]) -> str:
    """Number format and device of a pair's models in words, and the kernel of quantised models;
    pair: `Pair.facts`, or `pair` of a manifest.
    """

    def words(model: Mapping) -> str:
        device = model.get("gpu") or model["device"].upper()
        kernel = "" if model["kernel"] == "Linear" else f" with the kernel {model['kernel']}"
        return f"{model['dtype']} on the {device}{kernel}"

    target = words(pair["target"])
    draft = words(pair["draft"])
    if target == draft:
        return target
    return f"{target}, the draft in {draft}"


def show_text(text: str) -> None:
    """Show Markdown as it is."""
    from IPython.display import Markdown, display

    display(Markdown(text))


def show_table(frame: "pd.DataFrame", digits: int = 3, caption: str = "") -> None:
    """Show a table as `tables.markdown` writes it. A plain 0, 1, 2, … index is left out. The site
    shows the caption; without one, the heading above the table.
    """
    from IPython.display import Markdown, display

    from speclab.show import tables

    display(Markdown(tables.markdown(frame, digits)), metadata={"caption": caption})
