"""The page that explores a run: what is packed, bad input, and the page under a reader's hands."""

import base64
import gzip
import html
import json
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from browser import READY, chromium, opened

from speclab import runs
from speclab.__main__ import main
from speclab.explore import page, trace_data
from speclab.ops import explore, report, reproduce
from speclab.profiles import ROOT, load_profile
from speclab.runs import Run

TRACES = ROOT / "data" / "traces"
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


def made_run(
    temperature=0.0, prompts=2, length=12, name="made", folder="made", **columns
):
    """A run as `load_run` gives it, of token ids 0 .. 15 and no recorded trees."""
    rng = np.random.default_rng(5)
    rows = []
    for domain in ("code", "chat"):
        for number in range(prompts):
            for position in range(length):
                best = rng.permutation(16)[:8].astype(np.int32)
                rank = int(rng.integers(0, 3))
                rows.append(
                    {
                        "prompt_id": f"{domain}-{number}",
                        "domain": domain,
                        "position": position,
                        "token": int(best[rank]),
                        "draft_rank": rank,
                        "p_token": np.float32(rng.uniform(0.1, 1)),
                        "q_token": np.float32(rng.uniform(0, 1)),
                        "overlap": rng.uniform(),
                        "kl": 1.0,
                        "target_entropy": rng.uniform(0, 5),
                        "draft_entropy": rng.uniform(0, 5),
                        "target_top": int(best[0]),
                        "draft_top": int(best[0]),
                        "target_margin": 0.1,
                        "top_draft_ids": best,
                        "top_draft_q": np.sort(rng.dirichlet(np.ones(8)))[::-1],
                        "top_draft_p": rng.dirichlet(np.ones(8)),
                    }
                )
    trace = pd.DataFrame(rows).assign(**columns)
    model = {"path": f"no/{name}"}
    profile = {
        "name": name,
        "description": "",
        "target": model,
        "draft": model,
        "temperature": temperature,
        "depth": 1,
        "branches": 1,
        "budget": 1,
        "prompts": "nowhere.jsonl",
        "prompts_per_domain": prompts,
        "domains": ["code", "chat"],
    }
    manifest = {"profile": profile, "key": folder, "prompt_set": "", "files": {}}
    run = Run(ROOT / folder, manifest)
    nodes = trace[["prompt_id", "domain", "position"]].assign(
        node=1, parent=0, depth=1, rank=0, token=1, draft_prob=0.5, target_prob=0.5
    )
    run.__dict__.update(trace=trace, nodes=nodes)
    return run


def header_of(packed):
    raw = gzip.decompress(base64.b64decode(packed.base64))
    return json.loads(raw[4 : 4 + int.from_bytes(raw[:4], "little")])


# ---- packing -------------------------------------------------------------------------------------


def test_packing_is_byte_stable():
    both = [made_run(), made_run(1.0)]
    assert trace_data.pack_runs(both).base64 == trace_data.pack_runs(both).base64


def test_rows_in_any_order_are_packed_alike():
    run = made_run()
    mixed = made_run()
    order = pd.concat(
        [
            run.trace[run.trace["position"] == p]
            for p in (3, 0, 11, *range(1, 3), *range(4, 11))
        ]
    )
    mixed.__dict__["trace"] = order.reset_index(drop=True)
    assert trace_data.pack_runs([run]).base64 == trace_data.pack_runs([mixed]).base64


def test_ranks_beyond_two_bytes_are_kept():
    run = made_run()
    run.trace["draft_rank"] = run.trace["draft_rank"].replace(2, 150_000)
    kinds = header_of(trace_data.pack_runs([run]))["columns"]
    assert kinds["0.draft_rank"][0] == "uint32" and kinds["0.token"][0] == "uint16"


def test_a_draft_that_can_say_few_tokens():
    run = made_run()
    for name in ("top_draft_ids", "top_draft_q", "top_draft_p"):
        run.trace[name] = [values[:2] for values in run.trace[name]]
    assert trace_data.pack_runs([run]).prompts == 2


@pytest.mark.parametrize(
    ("temperatures", "said"),
    [
        ([0.0, 0.0], r"temperature \[0.0, 0.0\]"),
        ([1.0, 0.7], "one of sampled"),
        ([], "give one run"),
    ],
)
def test_other_runs_are_refused(temperatures, said):
    with pytest.raises(ValueError, match=said):
        trace_data.pack_runs([made_run(t) for t in temperatures])


def test_two_pairs_are_refused():
    with pytest.raises(ValueError, match="two pairs: .*one.* and .*other"):
        trace_data.pack_runs(
            [made_run(folder="one"), made_run(1.0, name="b", folder="other")]
        )


def test_a_trace_that_cannot_be_replayed_is_refused():
    with pytest.raises(ValueError, match="position"):
        trace_data.pack_runs([made_run(position=0)])


def test_only_so_many_prompts_as_fit():
    run = made_run(prompts=40)
    whole = page.page([run])
    small = page.page([run], largest=len(whole.encode()) - 3000)
    assert len(small.encode()) <= len(whole.encode()) - 3000
    kept = int(re.search(r"are the first (\d+) of each", html.unescape(small))[1])
    assert 1 <= kept < 40
    assert "The run holds 40 prompts of each domain" in small
    assert "The run holds" not in whole


def test_the_most_prompts_that_fit_are_kept():
    sizes = []

    def make(count):
        sizes.append(count)
        return SimpleNamespace(base64="x" * 100 * (count or 40), prompts=count or 40)

    assert page.thinned(make, 1234).prompts == 12
    assert page.thinned(make, 4000).prompts == 40
    assert page.thinned(make, 3999).prompts == 39
    assert page.thinned(make, 100).prompts == 1
    assert len(sizes) < 12
    with pytest.raises(ValueError, match="max_new_tokens"):
        page.thinned(make, 99)


def test_the_page_is_under_four_megabytes_with_every_prompt():
    both = [runs.load_run(TRACES / "smollm" / kind) for kind in ("greedy", "sampled")]
    packed = trace_data.pack_runs(both)
    assert packed.prompts == packed.recorded == 50
    assert len(page.assemble(packed, "smollm")) < page.LARGEST


def test_written_only_where_something_changed(tmp_path):
    file, both = tmp_path / "explore.html", [made_run(), made_run(1.0)]
    assert page.write_page(both, file)
    first = file.read_bytes()
    assert not page.write_page(both, file)
    file.write_bytes(re.sub(rb'content="\w+-\w+"', b'content="of other runs"', first))
    assert page.write_page(both, file) and file.read_bytes() == first
    assert page.write_page([both[0]], file)


@pytest.mark.parametrize("parts", [["texts"], []])
def test_an_unknown_part_is_named(parts):
    with pytest.raises(
        ValueError, match="allowed are text, tree, gamma, machine, bench"
    ):
        page.assemble(None, "", parts)


def test_the_committed_page_has_the_pieces_of_today():
    committed = (ROOT / "figures" / "smollm" / "explore.html").read_text(
        encoding="utf-8"
    )
    style = (page.ASSETS / "page.css").read_text(encoding="utf-8")
    again = (
        "make reproduce PROFILE=smollm, or python -m speclab explore, writes it again"
    )
    assert page.script() in committed and style in committed, again
    assert len(committed) < page.LARGEST


def test_assets_are_plain_short_lines():
    for path in page.ASSETS.iterdir():
        lines = path.read_text(encoding="utf-8").splitlines()
        assert max(map(len, lines)) <= 100, path.name


def test_assets_end_no_element_of_the_page():
    code = page.script()
    assert "</script" not in code.lower() and "import " not in re.sub(r"//.*", "", code)
    assert "</" not in page.in_script({"a": "</script>"})
    style = (page.ASSETS / "page.css").read_text(encoding="utf-8")
    assert "url(" not in style.replace("url(#hatch)", "") and "@import" not in style


# ---- in the browser ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def tiny_file(tmp_path_factory):
    """The page of the tiny pair, of some prompts."""
    file = tmp_path_factory.mktemp("explore") / "explore.html"
    both = [runs.load_run(TRACES / "tiny" / kind) for kind in ("greedy", "sampled")]
    file.write_text(page.page(both, per_domain=6), encoding="utf-8")
    return file


@pytest.fixture
def tiny(browser, tiny_file):
    shown, wrong = opened(browser, tiny_file, viewport={"width": 1280, "height": 900})
    yield shown
    assert wrong == []
    shown.close()


def words(shown):
    return shown.locator("#words .token").evaluate_all(
        "all => all.map(e => e.className)"
    )


def slide(shown, name, value):
    """Move a slider as a finger does: to a value, with its event."""
    shown.locator(f"#{name}").evaluate(
        "(e, v) => { e.value = v; e.dispatchEvent(new Event('input', { bubbles: true })); }",
        value,
    )


def pick(shown, name):
    shown.get_by_role("radio", name=name, exact=True).check()


def test_the_text_in_its_colours(tiny):
    assert tiny.locator("#words .block").count() == tiny.evaluate(
        "explore.view.cut.blocks.length"
    )
    kinds = tiny.evaluate("explore.view.cut.tokens.map((t) => t.kind)")
    assert [name.split()[1] for name in words(tiny)] == kinds
    for kind in ("accepted", "recovered", "bonus"):
        assert f"{kind} {kinds.count(kind)}" in tiny.locator("#legend").inner_text()


def test_dragging_gamma_cuts_the_text_anew(tiny):
    passes = []
    for gamma in (1, 2, 4, 8, 16):
        slide(tiny, "gamma", gamma)
        assert tiny.locator("#gamma-value").inner_text() == str(gamma)
        passes.append(int(re.match(r"\d+", tiny.locator("#summary").inner_text())[0]))
        assert f"gamma = {gamma}" in tiny.locator("#gamma-words").inner_text()
    assert passes == sorted(passes, reverse=True) and passes[0] > passes[-1]


def test_a_slider_under_the_mouse(tiny):
    box = tiny.locator("#gamma").bounding_box()
    middle = box["y"] + box["height"] / 2
    tiny.mouse.move(box["x"] + box["width"] * 0.2, middle)
    tiny.mouse.down()
    seen = []
    for share in (0.4, 0.6, 0.99):
        tiny.mouse.move(box["x"] + box["width"] * share, middle, steps=4)
        seen.append(int(tiny.locator("#gamma-value").inner_text()))
    tiny.mouse.up()
    assert seen == sorted(set(seen)) and seen[-1] == 16


def test_trees_depth_branches_budget(tiny):
    pick(tiny, "tree")
    assert (
        tiny.locator("#tree-row").is_visible()
        and tiny.locator("#chain-row").is_hidden()
    )
    for name, value in (("depth", 4), ("branches", 3), ("budget", 20)):
        slide(tiny, name, value)
    assert "tree:4,3,20" in tiny.locator("#gamma-words").inner_text()
    first = tiny.locator(
        "#tree-picture .node.rejected, #tree-picture .node.accepted"
    ).count()
    assert first == tiny.evaluate(
        "explore.view.cut.blocks[explore.view.cut.tokens["
        "explore.view.state.position].block].drafted"
    )


def test_a_token_is_explained(tiny):
    token = tiny.locator("#words .token.recovered").nth(2)
    token.click()
    details = tiny.locator("#details").inner_text()
    assert "The draft said" in details and "The target's best token is" in details
    assert "rejected and" in details and "overlap" in details
    tiny.locator("#words .token.accepted").first.hover()
    assert "so it is kept" in tiny.locator("#details").inner_text()
    tiny.locator("h1").hover()
    assert "rejected and" in tiny.locator("#details").inner_text()
    if tiny.locator("#words .token.bonus").count():
        tiny.locator("#words .token.bonus").first.click()
        assert "for free" in tiny.locator("#details").inner_text()


def test_arrow_keys_walk_through_the_text(tiny):
    tiny.locator("#words .token").nth(5).click()
    tiny.keyboard.press("ArrowRight")
    assert tiny.evaluate("explore.view.state.position") == 6
    chosen = tiny.locator("#words .token[aria-pressed=true]")
    assert chosen.evaluate_all("all => all.map((e) => e.dataset.position)") == ["6"]
    tiny.keyboard.press("ArrowLeft")
    tiny.keyboard.press("ArrowLeft")
    assert tiny.evaluate("Number(document.activeElement.dataset.position)") == 4
    block = tiny.evaluate("explore.view.cut.tokens[4].block")
    tiny.keyboard.press("ArrowDown")
    at = tiny.evaluate("explore.view.state.position")
    assert tiny.evaluate(f"explore.view.cut.tokens[{at}].block") == block + 1
    tiny.keyboard.press("Home")
    assert tiny.evaluate("explore.view.state.position") == 0


def test_stepping_through_the_blocks(tiny):
    tiny.get_by_role("button", name="First").click()
    blocks = tiny.evaluate("explore.view.cut.blocks.length")
    assert tiny.locator("#step-name").inner_text() == f"Block 1 of {blocks}"
    for _ in range(3):
        tiny.get_by_role("button", name="next block").click()
    assert tiny.locator("#step-name").inner_text() == f"Block 4 of {blocks}"
    assert tiny.locator("#words .block.later").count() == blocks - 4
    assert "One target pass checks" in tiny.locator("#step-words").inner_text()
    tiny.get_by_role("button", name="previous block").click()
    assert tiny.locator("#tree-name").inner_text() == f"Block 3 of {blocks}"
    tiny.get_by_role("button", name="Show all").click()
    assert tiny.locator("#words .block.later").count() == 0
    tiny.get_by_role("button", name="Play").click()
    assert tiny.get_by_role("button", name="Pause").is_visible()
    tiny.locator("#step-name", has_text="Block 2 of").wait_for()
    tiny.get_by_role("button", name="Pause").click()


def test_other_texts_and_domains(tiny):
    pick(tiny, "chat")
    assert tiny.evaluate("explore.view.run.domain[explore.view.state.text]") == "chat"
    before = tiny.locator("#text").input_value()
    tiny.get_by_role("button", name="next text").click()
    assert tiny.locator("#text").input_value() != before
    tiny.get_by_role("button", name="the text in the middle").click()
    assert tiny.locator("#text").input_value() == before
    assert "Asked:" in tiny.locator("#asked").inner_text()
    tiny.locator("#text").select_option(index=3)
    assert tiny.evaluate("explore.view.run.prompt[explore.view.state.text]").startswith(
        "chat-"
    )


def test_temperature_one_is_an_expectation_with_a_seeded_draw(tiny):
    prompt = tiny.evaluate("explore.view.run.prompt[explore.view.state.text]")
    assert tiny.locator("#draw-row").is_hidden()
    pick(tiny, "T = 1")
    assert tiny.evaluate("explore.view.run.prompt[explore.view.state.text]") == prompt
    summary = tiny.locator("#summary").inner_text()
    assert "one draw" in summary and "seed 1" in summary and "are expected" in summary
    expected = tiny.evaluate("""explore.modules["model.js"].textSums(explore.view.run,
      explore.view.state.text, explore.view.state.shape).blocks""")
    assert f"{expected:.1f} passes are expected" in summary
    before = words(tiny)
    tiny.get_by_role("button", name="Draw again").click()
    assert "seed 2" in tiny.locator("#summary").inner_text() and words(tiny) != before
    tiny.locator("#words .token.recovered").first.click()
    assert "came from the residual" in tiny.locator("#details").inner_text()
    pick(tiny, "tree")
    assert "point-mass" in tiny.locator("#rule").inner_text()
    assert tiny.locator("#draw-row").is_hidden()


def test_my_machine(tiny):
    def best():
        rows = tiny.locator("#machine-table tbody tr").all_inner_texts()
        return {row.split("\t")[0]: row.split("\t")[1:] for row in rows}

    slide(tiny, "c", 0)
    slide(tiny, "o", 0)
    assert all("★" in row[0] for row in best().values())
    slide(tiny, "c", 1)
    assert all(row[0] == "plain" for row in best().values())
    assert "no draft pays" in tiny.locator("#machine-words").inner_text()
    tiny.get_by_role("button", name="like a processor").click()
    assert tiny.locator("#knee-value").inner_text() == "3"
    assert "Faster than plain decoding" in tiny.locator("#machine-words").inner_text()
    assert tiny.locator("#machine-picture .star").count() == len(best())
    assert tiny.locator("#timeline .part.draft").count() == 4
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


def test_two_distributions(tiny):
    assert "0.75, the overlap" in tiny.locator("#bench-words").inner_text()
    tiny.get_by_role("button", name="make q = p").click()
    assert "nothing is ever rejected" in tiny.locator("#bench-words").inner_text()
    slider = tiny.get_by_role("slider", name="q of cat")
    slider.focus()
    for _ in range(20):
        tiny.keyboard.press("ArrowRight")
    assert "nothing is ever rejected" not in tiny.locator("#bench-words").inner_text()
    total = sum(float(tiny.locator(f"#share-q{i}").inner_text()) for i in range(5))
    assert total == pytest.approx(1, abs=0.02)
    for place in range(5):
        tiny.evaluate(f"explore.act.weigh('p', {place}, 0)")
    assert tiny.locator("#share-p0").inner_text() == "0.20", (
        "no weight at all: all words alike"
    )
    tiny.get_by_role("button", name="as in notebook 00").click()
    assert "0.75, the overlap" in tiny.locator("#bench-words").inner_text()


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
    places = {place for _, place, _ in reached}
    wanted = {
        "gamma",
        "text",
        "middle",
        "play",
        "c",
        "knee",
        "o",
        "same",
        "domain",
        "kind",
    }
    assert wanted <= places
    assert sum("token" in place for place in places) == 1, "one stop for the whole text"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window(browser, tiny_file, width, scheme, tmp_path):
    size = {"width": width, "height": 900}
    shown, wrong = opened(browser, tiny_file, viewport=size, color_scheme=scheme)
    for shape in (
        '{ kind: "chain", gamma: 16 }',
        '{ kind: "tree", depth: 8, branches: 5, budget: 32 }',
    ):
        shown.evaluate(f"explore.act.change({{ shape: {shape} }})")
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
    background = shown.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 200) == (
        scheme == "dark"
    )
    shown.screenshot(path=tmp_path / "page.png", full_page=True)
    assert wrong == []
    shown.close()


def test_text_can_be_told_from_what_is_behind_it(browser, tiny_file):
    """Contrast of at least 4.5 (WCAG AA) of tokens, text and quiet text, light and dark."""
    for scheme in ("light", "dark"):
        shown, _ = opened(browser, tiny_file, color_scheme=scheme)
        shown.evaluate("explore.act.step(null)")
        found = shown.evaluate(CONTRAST)
        shown.close()
        assert min(value for _, value in found) >= 4.5, [f for f in found if f[1] < 4.5]


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


def show_made(browser, tmp_path, both, strings=None, prompts=(), **options):
    file = tmp_path / "made.html"
    packed = trace_data.pack_runs(both, strings, prompts)
    text = page.assemble(packed, "made </title><b>", **options)
    file.write_text(text, encoding="utf-8")
    return opened(browser, file, viewport={"width": 390, "height": 900})


def test_odd_tokens_are_shown_and_never_run(browser, tmp_path):
    strings = {token: NASTY[token % len(NASTY)] for token in range(16)}
    both = [made_run(), made_run(1.0)]
    ids = both[0].trace["prompt_id"].unique()
    asked = [SimpleNamespace(prompt_id=name, text=NASTY[0] + NASTY[3]) for name in ids]
    shown, wrong = show_made(browser, tmp_path, both, strings, asked)
    for number in (0, 1):
        shown.evaluate(f"explore.act.toRun({number})")
        for position in range(12):
            shown.evaluate(f"explore.act.select({position})")
        for shape in (
            "{ kind: 'tree', depth: 2, branches: 3, budget: 9 }",
            "{ kind: 'chain', gamma: 3 }",
        ):
            shown.evaluate(f"explore.act.change({{ shape: {shape} }})")
    assert wrong == []
    assert shown.evaluate("window.hacked") is None
    assert shown.locator("img, #words script, #words b").count() == 0
    assert NASTY[0] + "\ufffdright" in shown.locator("#asked").inner_text()
    texts = shown.evaluate("""explore.view.trace.runs.flatMap((run, number) => {
      explore.act.toRun(number);
      return run.length.flatMap((_, text) => {
        explore.act.change({ text, position: 0 });
        return [...document.querySelectorAll("#words .token")].map((e) => e.textContent);
      });
    })""")
    seen = "|".join(texts)
    assert "</script><script>window.hacked = 1</script>" in seen and "&lt;b&gt;" in seen
    assert not re.search("[\u202e\u2028\u2029\x00\x07\ud800]", seen), (
        "unseen marks are U+FFFD"
    )
    assert max(map(len, texts)) <= 61, "a very long token is cut"
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390
    isolated = "getComputedStyle(document.querySelector('#words .token')).unicodeBidi"
    assert shown.evaluate(isolated) == "isolate"
    shown.close()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_one_run_has_no_switch(browser, tmp_path, temperature):
    shown, wrong = show_made(browser, tmp_path, [made_run(temperature)])
    assert wrong == [] and shown.locator("#temperature-row").is_hidden()
    assert shown.locator("#words .token").first.inner_text().startswith("#"), (
        "ids without names"
    )
    shown.close()


def test_a_text_of_one_token(browser, tmp_path):
    shown, wrong = show_made(
        browser, tmp_path, [made_run(length=1), made_run(1.0, length=1)]
    )
    shown.evaluate("explore.act.toRun(1)")
    shown.evaluate("explore.act.change({ shape: { kind: 'chain', gamma: 16 } })")
    assert wrong == [] and shown.locator("#words .token").count() == 1
    shown.close()


def test_a_browser_that_cannot_unpack_says_so(browser, tmp_path):
    file = tmp_path / "made.html"
    file.write_text(
        page.assemble(trace_data.pack_runs([made_run()]), "made"), encoding="utf-8"
    )
    shown = browser.new_page()
    shown.add_init_script("delete globalThis.DecompressionStream")
    shown.goto(file.as_uri())
    shown.wait_for_selector(READY)
    assert "DecompressionStream" in shown.get_by_role("alert").inner_text()
    assert shown.locator("#all").is_hidden()
    shown.close()


# ---- parts, as notebooks show them ---------------------------------------------------------------


@pytest.mark.parametrize(
    "parts", [("bench",), ("text", "tree"), ("gamma",), ("machine",)]
)
def test_parts_in_a_frame(browser, tmp_path, parts, monkeypatch):
    outputs = []
    monkeypatch.delenv("SPECLAB_OUT", raising=False)
    monkeypatch.setattr("IPython.display.display", outputs.append)
    both = [] if parts == ("bench",) else [made_run(), made_run(1.0)]
    page.show(*parts, runs=both)
    frame = outputs[0].data
    assert len(frame) < 200_000
    file = tmp_path / "notebook.html"
    file.write_text(
        f"<!doctype html><meta charset=utf-8><body>{frame}", encoding="utf-8"
    )
    shown = browser.new_page()
    wrong = []
    shown.on("pageerror", lambda error: wrong.append(str(error)))
    shown.goto(file.as_uri())
    inside = shown.frame_locator("iframe")
    inside.locator(READY).wait_for()
    for part in page.PARTS:
        assert inside.locator(f"#{part}-section").is_visible() == (part in parts)
    assert inside.locator("h1").is_hidden() and wrong == []
    assert inside.locator(".controls").is_visible() == bool(both)
    high = inside.locator("body").evaluate("e => [e.offsetHeight + 4, innerHeight]")
    assert high[0] == high[1], "the frame is as high as its content"
    shown.close()


def test_a_headless_run_keeps_the_static_picture(monkeypatch, tmp_path):
    outputs = []
    monkeypatch.setenv("SPECLAB_OUT", str(tmp_path))
    monkeypatch.setattr("IPython.display.display", outputs.append)
    page.show("bench")
    assert outputs == []


def test_another_look_of_the_page_runs_no_notebook_again():
    code = "from speclab.explore import page"
    found = reproduce.followed("00_any.ipynb", code)
    assert not [path for path in found if path.startswith("speclab/explore")]


def test_notebooks_show_their_parts():
    shown = {}
    for path in sorted((ROOT / "notebooks").glob("[0-9]*.py")):
        for asked in re.findall(
            r"^page\.show\(([^)]*)\)", path.read_text(encoding="utf-8"), re.M
        ):
            shown[path.name[:2]] = re.findall(r'"(\w+)"', asked)
    assert {
        "00": ["bench"],
        "02": ["gamma"],
        "09": ["machine"],
    }.items() <= shown.items()
    assert set(shown) >= {"00", "01", "02", "09", "10"}
    assert set().union(*shown.values()) <= set(page.PARTS)


# ---- make reproduce, and the command line --------------------------------------------------------


def test_made_again_only_where_something_changed(tmp_path, monkeypatch):
    profile = load_profile("tiny")
    file = tmp_path / "explore.html"
    monkeypatch.setattr(explore, "runs_there", lambda profile: [])
    assert explore.bring_up_to_date(profile, tmp_path, changed=True) == ""
    monkeypatch.setattr(explore, "runs_there", lambda profile: [made_run()])
    assert explore.bring_up_to_date(profile, tmp_path, changed=True) == "done"
    first = file.read_bytes()
    assert explore.bring_up_to_date(profile, tmp_path, changed=True) == "up to date"
    monkeypatch.setattr(explore, "runs_there", lambda profile: 1 / 0)
    assert explore.bring_up_to_date(profile, tmp_path, changed=False) == "up to date"
    monkeypatch.setattr(page, "pieces_digest", lambda: "others")
    monkeypatch.setattr(explore, "runs_there", lambda profile: [made_run()])
    assert explore.bring_up_to_date(profile, tmp_path, changed=False) == "done"
    assert file.read_bytes() != first


def test_nothing_else_is_overwritten(tmp_path):
    notes = tmp_path / "notes.html"
    notes.write_text("mine")
    for place in (notes, tmp_path):
        with pytest.raises(ValueError, match="name a new file"):
            page.write_page([made_run()], place)
    assert notes.read_text() == "mine"


def test_the_runs_of_a_profile_are_its_recorded_ones():
    kinds = [
        run.manifest["profile"]["temperature"]
        for run in explore.runs_there(load_profile("smollm"))
    ]
    assert kinds == [0.0, 1.0]
    few = load_profile("smollm", {"prompts_per_domain": 3})
    assert explore.runs_there(few) == [], "nothing is recorded for a page"


def test_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(page, "_strings", lambda run: None)
    file = tmp_path / "made" / "explore.html"
    traces = [str(TRACES / "tiny" / kind) for kind in ("sampled", "greedy")]
    assert main(["explore", *traces, "--out", str(file)]) == 0
    assert f"MB in {file}" in capsys.readouterr().out
    assert (
        header_of(SimpleNamespace(base64=packed_in(file)))["runs"][0]["temperature"]
        == 0
    )
    assert main(["explore", traces[0], traces[0], "--out", str(file)]) == 2
    assert "one of greedy text" in capsys.readouterr().err
    assert main(["explore", str(tmp_path), "--out", str(file)]) == 2
    assert "no manifest.json" in capsys.readouterr().err


def packed_in(file):
    text = file.read_text(encoding="utf-8")
    return re.search(r'id="trace">([^<]*)<', text)[1]


def test_the_report_links_to_the_page(tmp_path):
    build, figures = tmp_path / "build" / "tiny", tmp_path / "figures" / "tiny"
    build.mkdir(parents=True)
    figures.mkdir(parents=True)
    assert (
        "explore.html" not in report.write_index(build, figures, "tiny", []).read_text()
    )
    (figures / "explore.html").write_text("a page")
    index = report.write_index(build, figures, "tiny", []).read_text()
    assert 'href="../../figures/tiny/explore.html"' in index
