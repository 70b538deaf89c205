"""Studies with less than the kit's own: twelve prompts, and with them one category and no other
prompts, with a name that Markdown, HTML, LaTeX and matplotlib read otherwise. Every notebook runs,
or one line says why it does not.
"""

import json
import re
import sys
from inspect import isfunction

import pytest
import yaml
from bs4 import BeautifulSoup
from conftest import write_rows
from test_end_to_end import NOTEBOOKS, imported, light  # noqa: F401
from test_own_study import EXAMPLE

from speclab import stats
from speclab.__main__ import main
from speclab.drafts import shipped
from speclab.lab import stopping
from speclab.show import figure_files, tables
from speclab.study import pairs, recording, runs
from speclab.study.profiles import load_profile

NAME = 'it\'s "5 %" of $x_1$, #2 a|b <u>c & d</u> *e* שלום 🙂 ^{f}~\\g'
TINY = {name: {"path": f"data/pairs/tiny/{name}"} for name in ("target", "draft")}
LINES = (EXAMPLE.parent / "prompts.jsonl").read_text("utf-8").splitlines()
TICKETS = [row for row in map(json.loads, LINES) if "prompt" in row]
SMALLEST = {
    "00_by_hand": {"draws": 200, "blocks_each": 10},
    "02_gamma_sweep": {"largest_gamma": 2, "gamma": 2},
    "08_better_drafts": {
        "bit_widths": [4],
        "exit_layers": [2],
        "judged_prompts_per_domain": 5,
        "max_gamma": 2,
    },
    "09_budgets_and_routing": {"max_gamma": 2, "budget": 2},
    "10_wall_clock": {
        "prompts_per_domain_timed": 1,
        "new_tokens": 4,
        "pass_repeats": 3,
        "pass_tries": 1,
        "probes": ["chain:1"],
        "gammas": [1],
        "budget": 2,
        "max_gamma": 2,
        "copying_gamma": 2,
        "folds": 2,
        "batches": [1],
    },
    "01_load_models": {"new_tokens": 8},
    "13_public_runs": {"permutations": 200, "deepest": 3, "gammas": [1]},
    "14_your_log": {"gammas": [1], "most_requests": 30, "deepest": 2},
}


# words of the project's own prompts; a target may be chat-tuned and have a chat template
OF_PROJECT = re.compile(
    r"\b(code|maths?|reasoning|chat(?! template|-tuned)|unwrapped|second (prompt )?set)\b",
    re.IGNORECASE,
)


def strangers(page):
    """The places of a page of the site that speak of the project's own prompts, but in code."""
    soup = BeautifulSoup(page, "html.parser").article
    for hidden in soup(["script", "style", "code", "pre", "summary"]):
        hidden.decompose()
    for picture in soup("img"):
        picture.replace_with(picture["alt"])
    text = " ".join(soup.get_text(" ").split())
    return [text[max(0, m.start() - 60) : m.end() + 40] for m in OF_PROJECT.finditer(text)]


def test_the_words_of_the_project_are_found():
    """The negative control: without it what follows could not fail."""
    page = "<article>in <code>chat</code>, the chat template<img alt='of math'></article>"
    assert strangers(page) == ["in , the chat template of math"]


@pytest.fixture
def little(light, tmp_path, monkeypatch):  # noqa: F811
    """`reproduce` in copies of this process, with runs of its own, without GPTQModel."""
    monkeypatch.setattr(runs, "RUNS", tmp_path / "runs")
    monkeypatch.delenv("SPECLAB_TRACES", raising=False)
    monkeypatch.setitem(sys.modules, "gptqmodel", None)
    return tmp_path


@pytest.fixture
def quick(monkeypatch, tiny_pair):
    """The pair is loaded already and has no drafts of the kit, each figure is laid out once, and
    what is resampled or fitted on many values is so on a few.
    """

    def laid_out(draw, frame, folder, slug, *_):
        figure_files.draw_styled(draw)
        tables.write_values(frame, folder, slug)
        (folder / f"{slug}.png").write_bytes(slug.encode())

    monkeypatch.setattr(figure_files, "save_figure", laid_out)
    for module in (pairs, recording):
        monkeypatch.setattr(module, "load_pair", lambda profile: tiny_pair)
    monkeypatch.setattr(shipped, "shipped_drafts", lambda pair: [])
    monkeypatch.setattr(stopping, "THRESHOLDS", stopping.THRESHOLDS[:12:6])
    modules = [module for name, module in sys.modules.items() if name.startswith("speclab.")]
    for function in {one for module in modules for one in vars(module).values() if isfunction(one)}:
        if stats.RESAMPLES in (known := function.__defaults__ or ()):
            fewer = tuple(100 if value == stats.RESAMPLES else value for value in known)
            monkeypatch.setattr(function, "__defaults__", fewer)
    monkeypatch.setattr(stats, "RESAMPLES", 100)


def written(folder, name, rows):
    """A file of prompts."""
    write_rows(folder / name, rows)
    return name


def of_domains(rows, *names):
    """Short prompts with these domains in turn, and ids as odd as the names."""
    return [
        {"prompt_id": f"{i}|_$<u>", "domain": names[i % len(names)], "prompt": row["prompt"][:48]}
        for i, row in enumerate(rows)
    ]


def every_notebook(folder, capfd, settings):
    """Run all notebooks of a study. Returns the folders of its pages and figures, and why some
    notebooks have no page, by number.
    """
    study = folder / "study.yaml"
    facts = {"name": "small", "template": "none", "temperature": 0.7, "notebooks": SMALLEST}
    study.write_text(yaml.safe_dump(facts | TINY | settings), encoding="utf-8")
    words = ["reproduce", "--profile", str(study), "--out", str(folder), "--workers", "1"]
    status = main(words)
    said = capfd.readouterr()
    assert status == 0, said.out[-3000:] + said.err[-3000:]
    name = load_profile(study).name
    build, figures = folder / "build" / name, folder / "figures" / name
    assert not [*build.glob("*.failed.*")]
    pages = {page.stem for page in build.glob("site/[0-9]*.html")}
    for page in pages:
        assert "**Answer.**" in (build / f"{page}.ipynb").read_text(encoding="utf-8")
    lines = {line.split()[0]: line for line in said.out.splitlines() if line.strip()}
    return build, figures, {stem[:2]: lines[stem] for stem in {*NOTEBOOKS} - pages}


def check_name(build, figures):
    """That pages and tables show NAME as it is, and never as their own language, and that the
    site's speak of this study only.
    """
    for page in (*build.glob("site/[0-9]*.html"), figures / "explore.html"):
        soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
        assert not soup.find("u"), page
        if page.name[:2] in ("02", "03", "04"):
            assert NAME in " ".join(soup.article.get_text(" ").split()), page
        if page.name[:2] in ("02", "03", "05", "06"):
            assert strangers(page.read_text(encoding="utf-8")) == [], page
            assert f'src="{page.name[:2]}/' in str(soup.article), "its own figures"
    for page in figures.glob("*/README.md"):
        text = re.sub("```.*?```|^    .*?$", "", page.read_text("utf-8"), flags=re.DOTALL | re.M)
        text = re.sub(r'alt="[^"]*"|`[^`\n]*`', "", text)
        assert not re.search(r"(?<!\\)(<u>|\$x_1\$)|a\|b", text), page
    for table in figures.glob("*/*.tex"):
        assert not re.search(r"<(?!\$)|(?<!\\)(\$x|_1|#2)|a\|b", table.read_text("utf-8")), table


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("quick")
def test_one_category_of_twelve_prompts_and_no_others(little, capfd):
    settings = {"max_new_tokens": 16, "other_prompts": []}
    settings |= {"top_k": 20, "top_p": 0.95, "min_p": 0.05}
    settings["prompts"] = written(little, "mine.jsonl", of_domains(TICKETS[:12], NAME))
    build, figures, left_out = every_notebook(little, capfd, settings)
    assert [*left_out] == ["11"] and "left out needs" in left_out["11"]
    check_name(build, figures)
    said = (build / "site" / f"{NOTEBOOKS[2]}.html").read_text(encoding="utf-8")
    assert "T = 0.7, top-k = 20, top-p = 0.95, min-p = 0.05" in said


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twelve_prompts_with_cut_probabilities(little, capfd):
    rows = of_domains(TICKETS, NAME, "字" * 60)
    settings = {"prompts": written(little, "mine.jsonl", rows[:12]), "max_new_tokens": 24}
    settings["other_prompts"] = [written(little, "others.jsonl", rows[12:24])]
    settings |= {"top_k": 1, "top_p": 0.9}  # q is 0 for one of two branches
    build, figures, left_out = every_notebook(little, capfd, settings)
    assert [*left_out] == ["11"] and "left out needs" in left_out["11"]
    check_name(build, figures)
