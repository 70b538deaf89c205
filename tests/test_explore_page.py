"""The page that explores a run: what is packed, bad input, and the page under a reader's hands."""

import html
import re
from types import SimpleNamespace

import pytest
from browser import READY, chromium, opened
from frames import shipped

from speclab import runs
from speclab.__main__ import main
from speclab.explore import page, trace_data
from speclab.profiles import ROOT
from speclab.runs import Run

NASTY = [
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "</textarea><!--",
    "\u202eright to left",
    "\u05e9\u05dc\u05d5\u05dd",
    "\ufffd",
    "\ud800",
    "\x00\x07",
    "word" * 1000,
    "\u2028\u2029",
    "a\nb\r\n\tc",
    "",
    "&lt;b&gt;",
    "{trace}",
]


def made_run(temperature=0.0, prompts=2, name="made", prompt_set="", **columns):
    """The first prompts of each domain of a recorded run, twelve positions of each, of a pair that
    is not there.
    """
    whole = shipped("tiny", "sampled" if temperature else "greedy")
    firsts = whole.trace.drop_duplicates("prompt_id")
    kept = firsts.groupby("domain").head(prompts)["prompt_id"]
    model = {"path": f"no/{name}"}
    changes = {"name": name, "temperature": temperature, "target": model, "draft": model}
    facts = {"key": name, "files": {}, "weights": name, "prompt_set": prompt_set}
    run = Run(ROOT / name, facts | {"profile": whole.manifest["profile"] | changes})
    for table in ("trace", "nodes"):
        rows = getattr(whole, table)
        rows = rows[rows["prompt_id"].isin(kept) & (rows["position"] < 12)]
        run.__dict__[table] = rows.reset_index(drop=True)
    run.__dict__["trace"] = run.trace.assign(**columns)
    return run


# ---- packing -------------------------------------------------------------------------------------


def test_packing_is_byte_stable_whatever_the_order_of_the_rows():
    both, mixed = [made_run(), made_run(1.0)], made_run()
    rows = mixed.trace.sort_values("position", ascending=False, kind="stable")
    mixed.__dict__["trace"] = rows.reset_index(drop=True)
    packed = trace_data.pack_runs([mixed, both[1]]).base64
    assert packed == trace_data.pack_runs(both).base64


@pytest.mark.parametrize("other", [(0.0,), (1.0, 2, "other"), (1.0, 2, "made", "others")])
def test_other_runs_are_refused(other):
    with pytest.raises(ValueError, match="made, .*: give one run, or one of greedy text"):
        trace_data.pack_runs([made_run(), made_run(*other)])


def test_a_trace_that_cannot_be_replayed_is_refused():
    with pytest.raises(ValueError, match="position"):
        trace_data.pack_runs([made_run(position=0)])


def test_the_most_prompts_that_fit_are_kept(monkeypatch):
    run = made_run(prompts=40)
    room = len(page.page([run]).encode()) - 3000
    monkeypatch.setattr(page, "LARGEST", room)
    small = page.page([run])
    assert len(small.encode()) <= room
    kept = int(re.search(r"are the first (\d+) of each", html.unescape(small))[1])
    assert 1 <= kept < 40
    monkeypatch.setattr(page, "LARGEST", 0)
    with pytest.raises(ValueError, match="max_new_tokens"):
        page.page([run])


@pytest.fixture
def spelt(monkeypatch):
    """The tokenizer of a pair that is not there, as if it were."""
    tokenizer = runs.tokenizer_of(shipped("tiny", "greedy"))
    monkeypatch.setattr(page, "tokenizer_of", lambda run: tokenizer)


def test_written_only_where_it_would_show_something_else(tmp_path, request):
    """Without the tokenizer, with it, of other runs, and the same run under another name."""
    file = tmp_path / "explore.html"
    assert page.write_page([made_run()], file)
    request.getfixturevalue("spelt")
    assert page.write_page([made_run()], file)
    assert not page.write_page([made_run()], file)
    first = file.read_bytes()
    file.write_bytes(re.sub(rb'content="\w{32}"', b'content="of other runs"', first))
    assert page.write_page([made_run()], file) and file.read_bytes() == first
    assert page.write_page([made_run(name="new")], file)
    assert "pair new" in file.read_text()


def test_a_profiles_runs_are_explored_where_they_are_there(tmp_path, capsys):
    """As `make reproduce` asks: of smollm the shipped traces, though their key needs the weights'
    promise only; of a profile whose models are nowhere nothing is written, which a line says.
    """
    file = tmp_path / "explore.html"
    for said in ("done", "up to date"):
        assert main(["explore", "--profile", "smollm", "--out", str(file)]) == 0
        assert said in capsys.readouterr().out
    file.unlink()
    assert main(["explore", "--profile", "t4", "--out", str(file)]) == 2
    assert "neither its greedy nor its sampled run" in "".join(capsys.readouterr())
    assert not file.exists()
    assert main(["explore", "--out", str(file)]) == 2


def test_the_committed_page_has_the_pieces_of_today():
    committed = (ROOT / "figures" / "smollm" / "explore.html").read_text(encoding="utf-8")
    style = (page.ASSETS / "page.css").read_text(encoding="utf-8")
    again = "make reproduce PROFILE=smollm writes it again"
    assert page.script() in committed and style in committed, again
    assert len(committed) < page.LARGEST


# ---- in the browser ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def tiny_file(tmp_path_factory):
    """The page of the tiny pair, of some prompts."""
    file = tmp_path_factory.mktemp("explore") / "explore.html"
    both = [shipped("tiny", kind) for kind in ("greedy", "sampled")]
    file.write_text(page.page(both, per_domain=6), encoding="utf-8")
    return file


@pytest.fixture
def tiny(browser, tiny_file):
    shown, wrong = opened(browser, tiny_file, viewport={"width": 1280, "height": 900})
    yield shown
    assert wrong == []
    shown.close()


def words(shown, part="#words"):
    every = shown.locator(f"{part} .token")
    return every.evaluate_all("all => all.map(e => e.className)")


def slide(shown, name, value):
    """Move a slider as a finger does: to a value, with its event."""
    shown.locator(f"#{name}").evaluate(
        "(e, v) => { e.value = v; e.dispatchEvent(new Event('input', { bubbles: true })); }", value
    )


def pick(shown, name):
    shown.get_by_role("radio", name=name, exact=True).check()


def test_arrow_keys_walk_through_the_text(tiny):
    tiny.locator("#words .token").nth(5).click()
    steps = [("ArrowRight", 6), ("ArrowLeft", 5), ("ArrowLeft", 4), ("Home", 0), ("ArrowRight", 1)]
    for key, position in steps:
        tiny.keyboard.press(key)
        chosen = tiny.locator("#words .token[aria-pressed=true]")
        assert chosen.evaluate_all("all => all.map((e) => +e.dataset.position)") == [position]
        assert tiny.evaluate("+document.activeElement.dataset.position") == position
    block = "explore.view.cut.tokens[explore.view.state.position].block"
    before = tiny.evaluate(block)
    tiny.keyboard.press("ArrowDown")
    assert tiny.evaluate(block) == before + 1


def test_the_address_leads_back_to_the_place(tiny, browser):
    pick(tiny, "T = 1")
    pick(tiny, "tree")
    slide(tiny, "depth", 5)
    tiny.locator("#words .token").nth(7).click()
    state = "JSON.stringify([explore.view.run.prompt[explore.view.state.text], \
      explore.view.state.run, explore.view.state.shape, explore.view.state.position])"
    again = browser.new_page()
    again.goto(tiny.url)
    again.wait_for_selector(READY)
    assert again.evaluate(state) == tiny.evaluate(state)
    again.evaluate("location.hash = '#text=none&T=1&draft=chain:99'")
    assert again.evaluate(state) == tiny.evaluate(state), "no such place: nothing moves"
    again.close()


def test_words_and_the_next_rejection_are_found(tiny):
    at = "[explore.view.state.text, explore.view.state.position]"
    strings = "[...explore.view.column('token')].map((t) => explore.view.trace.strings[t])"
    tiny.evaluate("explore.act.find('no such words anywhere')")
    assert tiny.locator("#found").inner_text() == "in no text"
    last = tiny.evaluate(strings)[-2].strip()
    tiny.locator("#find").fill(last.upper())
    tiny.locator("#find").press("Enter")
    text, position = tiny.evaluate(at)
    shown = tiny.evaluate(strings)[position:]
    assert last.lower() in "".join(shown)[: len(shown[0] + last)].lower()
    kinds = tiny.evaluate("explore.view.cut.tokens.map((t) => t.kind)")
    rejected = [place for place, kind in enumerate(kinds) if kind == "recovered"]
    tiny.locator("#next-rejection").click()
    following = next((place for place in rejected if place > position), rejected[0])
    assert tiny.evaluate(at) == [text, following]


def test_the_same_text_stands_beside_under_another_gamma(tiny):
    tiny.locator("#beside-part summary").click()
    slide(tiny, "beside", 4)
    assert words(tiny, "#beside-words") == words(tiny), "gamma 4 is shown already"
    slide(tiny, "beside", 2)
    passes = tiny.evaluate(
        """explore.modules["model.js"].textSums(explore.view.run,
      explore.view.state.text, { kind: "chain", gamma: 2 }).blocks"""
    )
    assert tiny.locator("#beside-words .block").count() == passes


def test_a_machine_that_was_measured_is_one_press_away(tmp_path):
    assert page.machine_of(tmp_path) is None
    (tmp_path / "numbers.json").write_text('{"c": 0.06, "overhead": -0.1}')
    rows = "n,v(n)\n1,1.0\n2,1.04\n3,1.2\n4,1.01\n"
    (tmp_path / "pass-times.csv").write_text(rows)
    assert page.machine_of(tmp_path) == {"c": 0.06, "o": 0.0, "knee": 2}


def test_temperature_one_is_an_expectation_with_a_seeded_draw(tiny):
    prompt = "explore.view.run.prompt[explore.view.state.text]"
    asked = tiny.evaluate(prompt)
    assert tiny.locator("#draw-row").is_hidden()
    pick(tiny, "T = 1")
    assert tiny.evaluate(prompt) == asked
    expected = tiny.evaluate("""explore.modules["model.js"].textSums(explore.view.run,
      explore.view.state.text, explore.view.state.shape).blocks""")
    summary = tiny.locator("#summary").inner_text()
    assert f"{expected:.1f} passes are expected" in summary and "seed 1" in summary
    before = words(tiny)
    tiny.get_by_role("button", name="Draw again").click()
    assert words(tiny) != before
    pick(tiny, "tree")
    assert "point-mass" in tiny.locator("#rule").inner_text()
    assert tiny.locator("#draw-row").is_hidden()


def test_my_machine(tiny):
    def plain():
        """Whether plain decoding is the fastest, by domain."""
        rows = tiny.locator("#machine-table tbody tr").all_inner_texts()
        return [row.split("\t")[1] == "plain" for row in rows]

    slide(tiny, "o", 0)
    slide(tiny, "c", 0)
    assert not any(plain())
    slide(tiny, "c", 1)
    assert all(plain())
    tiny.get_by_role("button", name="like a processor").click()
    assert tiny.locator("#knee-value").inner_text() == "3"
    assert tiny.locator("#machine-picture .star").count() == len(plain())
    # each domain's break-even c: just below it something pays, just above nothing does
    limits = tiny.evaluate("""() => {
      const { choiceOf } = explore.modules["machine_view.js"];
      const { domainsOf } = explore.modules["model.js"];
      const { view } = explore;
      const bestAt = (domain, c) => {
        view.state.machine.c = c;
        const choice = choiceOf(view, domain);
        return choice.settings[choice.best].speedup;
      };
      return domainsOf(view.run).map((domain) => {
        const { pays } = choiceOf(view, domain);
        return [bestAt(domain, pays - 1e-6), bestAt(domain, pays + 1e-6)];
      });
    }""")
    assert all(below > 1 and above == 1 for below, above in limits)


def test_every_control_can_be_reached_and_has_a_name(tiny):
    tiny.evaluate("document.activeElement.blur()")
    reached = []
    for _ in range(80):
        tiny.keyboard.press("Tab")
        known = tiny.evaluate("""() => {
          const e = document.activeElement;
          const label = e.labels && e.labels[0] ? e.labels[0].innerText : "";
          return [e.tagName, e.id || e.name || e.className, e.getAttribute("aria-label")
            || label || e.innerText || e.title];
        }""")
        if known[0] == "BODY":
            break
        reached.append(known)
    assert all(name.strip() for *_, name in reached), reached
    places = [place for _, place, _ in reached]
    wanted = "gamma text middle play c knee o same domain kind"
    assert set(wanted.split()) <= set(places)
    assert sum("token" in place for place in places) == 1, "one stop for the whole text"


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_nothing_is_wider_than_the_window_and_text_can_be_read(browser, tiny_file, width, scheme):
    """Contrast of at least 4.5 (WCAG AA) of tokens, text and quiet text."""
    size = {"width": width, "height": 900}
    shown, wrong = opened(browser, tiny_file, viewport=size, color_scheme=scheme)
    found = shown.evaluate(CONTRAST)
    assert min(value for _, value in found) >= 4.5, found
    for shape in (
        '{ kind: "chain", gamma: 16 }',
        '{ kind: "tree", depth: 8, branches: 5, budget: 32 }',
    ):
        shown.evaluate(f"explore.act.change({{ shape: {shape} }})")
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
    background = shown.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(map(int, re.findall(r"\d+", background)[:3])) >= 200
    assert light == (scheme == "light") and wrong == []
    shown.close()


CONTRAST = """() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map((c) => c / 255)
      .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (colour.startsWith("rgb(")) return colour;
    }
  };
  const some = [".token.accepted", ".token.recovered", "#legend .token.bonus", "#summary", ".lead",
    "#rule", ".why", ".tag", ".facts dt", "footer p", ".segmented input:checked + span"];
  return some.flatMap((name) => [...document.querySelectorAll(name)].slice(0, 2).map((e) => {
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
    return [name, (a + 0.05) / (b + 0.05)];
  }));
}"""


# ---- bad input -----------------------------------------------------------------------------------


def show_made(browser, tmp_path, both, strings=None, prompts=()):
    file = tmp_path / "made.html"
    packed = trace_data.pack_runs(both, strings, prompts)
    file.write_text(page.assemble(packed, title="made </title><b>"), encoding="utf-8")
    return opened(browser, file, viewport={"width": 390, "height": 900})


def test_odd_tokens_are_shown_and_never_run(browser, tmp_path):
    both = [made_run(), made_run(1.0)]
    ids = both[0].trace["prompt_id"].unique()
    asked = [SimpleNamespace(prompt_id=name, text=NASTY[0] + NASTY[3]) for name in ids]
    shown, wrong = show_made(browser, tmp_path, both, NASTY * 1000, asked)
    texts = shown.evaluate("""explore.view.trace.runs.flatMap((run, number) => {
      explore.act.toRun(number);
      return run.length.flatMap((_, text) => {
        explore.act.change({ text, position: 0,
          shape: { kind: 'tree', depth: 2, branches: 3, budget: 9 } });
        for (let position = 0; position < 12; position++) explore.act.select(position);
        return [...document.querySelectorAll("#words .token")].map((e) => e.textContent);
      });
    })""")
    assert wrong == [] and shown.evaluate("window.hacked") is None
    assert shown.locator("img, #words script, #words b").count() == 0
    assert NASTY[0] + "\ufffdright" in shown.locator("#asked").inner_text()
    seen = "|".join(texts)
    assert "</script><script>window.hacked = 1</script>" in seen and "&lt;b&gt;" in seen
    unseen = "[\u202e\u2028\u2029\x00\x07\ud800]"
    assert not re.search(unseen, seen), "unseen marks are U+FFFD"
    assert max(map(len, texts)) <= 61, "a very long token is cut"
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390
    shown.close()


# ---- parts, as notebooks show them ---------------------------------------------------------------


@pytest.mark.parametrize("parts", [("bench",), ("text", "tree"), ("gamma", "machine")])
def test_parts_in_a_frame(browser, tmp_path, parts, monkeypatch):
    outputs = []
    monkeypatch.delenv("SPECLAB_OUT", raising=False)
    monkeypatch.setattr("IPython.display.display", outputs.append)
    both = [] if parts == ("bench",) else [made_run(), made_run(1.0)]
    page.show(*parts, runs=both)
    file = tmp_path / "notebook.html"
    ready = '<body data-ready="yes">'  # the frame's own is waited for below
    file.write_text(f"<!doctype html><meta charset=utf-8>{ready}{outputs[0].data}")
    assert file.stat().st_size < 200_000
    shown, wrong = opened(browser, file)
    inside = shown.frame_locator("iframe")
    inside.locator(READY).wait_for()
    visible = [part for part in page.PARTS if inside.locator(f"#{part}-section").is_visible()]
    assert visible == [*parts]
    assert inside.locator("h1").is_hidden()
    assert inside.locator(".controls").is_visible() == bool(both)
    height, frame = inside.locator("body").evaluate("e => [e.offsetHeight + 4, innerHeight]")
    assert height == frame, "the frame is as high as its content"
    assert wrong == []
    shown.close()
