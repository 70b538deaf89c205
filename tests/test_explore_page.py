"""The page that explores a run: its data, bad input, and its use in a browser."""

import html
import re
from types import SimpleNamespace

import pytest
from browser import READY, chromium, opened
from conftest import refuses
from frames import shipped, with_lists

from speclab.__main__ import main
from speclab.cost import Costs
from speclab.explore import page, trace_data
from speclab.study import runs
from speclab.study.profiles import ROOT
from speclab.study.runs import Run

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
    kept = whole.trace.drop_duplicates("prompt_id").groupby("domain").head(prompts)["prompt_id"]
    model = {"path": f"no/{name}"}
    changes = {"name": name, "temperature": temperature, "target": model, "draft": model}
    facts = {"files": {}, "prompt_set": prompt_set, "weights": {"target": name, "draft": name}}
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
    with refuses("made, .*: give one run, or one of greedy text"):
        trace_data.pack_runs([made_run(), made_run(*other)])


def test_a_trace_that_cannot_be_replayed_is_refused():
    with refuses("position"):
        trace_data.pack_runs([made_run(position=0)])


@pytest.mark.parametrize(
    "spoilt",
    [
        {"token": 5},
        {"prompt_set": "others"},
        {"weights": {"target": "another", "draft": "head"}},
        {"weights": shipped("tiny", "greedy").manifest["weights"]},
    ],
)
def test_a_second_draft_over_other_texts_is_refused(spoilt):
    """Another token at one position, other prompts, another target, the same draft."""
    first = shipped("tiny", "greedy")
    second = with_lists(first)
    trace_data.check_second([first], [second])
    second.manifest.update(spoilt)
    if "token" in spoilt:
        second.trace.loc[second.trace["position"] == 3, "token"] = 5
    with refuses("second draft, .*another draft.*Record it with"):
        trace_data.pack_runs([first], second=[second])


def test_a_second_draft_needs_a_run_at_its_temperature():
    first, sampled = (shipped("tiny", kind) for kind in ("greedy", "sampled"))
    second = with_lists(first)
    for firsts, others in (([sampled], [second]), ([first], [second, second])):
        with refuses("at its temperature"):
            trace_data.pack_runs(firsts, second=others)


def test_a_head_recorded_for_too_short_blocks_is_refused():
    run = with_lists(shipped("tiny", "greedy"), ahead=3)
    with refuses("recorded for blocks of up to 3"):
        trace_data.pack_runs([run])


def test_two_drafts_of_one_name_are_numbered():
    first = shipped("tiny", "greedy")
    second = with_lists(first)
    assert trace_data.draft_names([first], [second]) == ["draft", "head"]
    assert trace_data.draft_names([second], [second]) == ["head 1", "head 2"]


def test_the_most_prompts_that_fit_are_kept(monkeypatch):
    run = made_run(prompts=40)
    room = len(page.page([run]).encode()) - 3000
    monkeypatch.setattr(page, "LARGEST", room)
    small = page.page([run])
    assert len(small.encode()) <= room
    kept = int(re.search(r"holds the first (\d+) of each", html.unescape(small))[1])
    assert 1 <= kept < 40
    monkeypatch.setattr(page, "LARGEST", 0)
    with refuses("max_new_tokens"):
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
    first = file.read_bytes()
    assert not page.write_page([made_run()], file)
    assert page.write_page([made_run(name="new")], file) and "pair new" in file.read_text()
    assert page.write_page([made_run()], file) and file.read_bytes() == first
    file.write_text("mine")
    with refuses("is not a page of this kit; name a new file"):
        page.write_page([made_run()], file)


def test_the_page_names_notebooks_by_their_titles_without_links():
    """A code host shows no HTML; the page's copy in the site has the links (test_site)."""
    words = (page.ASSETS / "page.html").read_text("utf-8")
    assert 'href="' not in words
    named = re.findall(r'<a data-page="(\d\d)">(\d+)\. (.+?)</a>', words)
    assert len(named) > 10
    for place, number, title in named:
        [source] = (ROOT / "notebooks").glob(f"{place}_*.py")
        assert f"# # {int(number)}. {html.unescape(title)}\n" in source.read_text("utf-8")


def test_a_profiles_runs_are_explored_where_they_are_there(tmp_path, capsys):
    """As in `make reproduce`: smollm uses the shipped traces, whose key needs only the promised
    weights. For a profile without models nothing is written, and one line says so.
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


def test_a_second_draft_is_chosen_and_compared(browser, tmp_path):
    """The head has a greedy run only: at T = 1 it cannot be chosen, and with it T = 1 cannot be."""
    both = [shipped("tiny", kind) for kind in ("greedy", "sampled")]
    file = tmp_path / "explore.html"
    file.write_text(page.page(both, per_domain=2, second=[with_lists(both[0])]), "utf-8")
    shown, wrong = opened(browser, file, viewport={"width": 1280, "height": 900})
    pick(shown, "head")
    assert shown.get_by_role("radio", name="T = 1", exact=True).is_disabled()
    shown.click("#beside-part summary")
    slide(shown, "beside", 4)
    said = shown.inner_text("#beside-summary")
    assert re.match(r"Compared with gamma 4 \(head\), gamma 4 \(draft\) (saves|needs)", said)
    shown.reload()
    shown.wait_for_selector(READY)
    assert shown.evaluate("explore.view.run.draft") == "head"
    shown.locator("#models").get_by_role("radio", name="draft").check()
    pick(shown, "T = 1")
    assert shown.locator("#models").get_by_role("radio", name="head").is_disabled()
    assert wrong == []


@pytest.fixture
def tiny(browser, tiny_file):
    shown, wrong = opened(browser, tiny_file, viewport={"width": 1280, "height": 900})
    yield shown
    assert wrong == []


def slide(shown, name, value):
    """Move a slider as a finger does: to a value, with its event."""
    shown.locator(f"#{name}").evaluate(
        "(e, v) => { e.value = v; e.dispatchEvent(new Event('input', { bubbles: true })); }", value
    )


def pick(shown, name):
    shown.get_by_role("radio", name=name, exact=True).check()


def test_arrow_keys_walk_through_the_text(tiny):
    tiny.locator("#words .token").nth(5).click()
    for key, position in (("ArrowRight", 6), ("ArrowLeft", 5), ("Home", 0), ("ArrowRight", 1)):
        tiny.keyboard.press(key)
        places = tiny.evaluate("""[
          ...document.querySelectorAll("#words .token[aria-pressed=true]"), document.activeElement
        ].map((e) => +e.dataset.position)""")
        assert places == [position, position], "the chosen token has the focus"
    block = "explore.view.cut.tokens[explore.view.state.position].block"
    before = tiny.evaluate(block)
    tiny.keyboard.press("ArrowDown")
    assert tiny.evaluate(block) == before + 1


def test_the_address_leads_back_to_the_place(tiny, browser):
    pick(tiny, "T = 1")
    pick(tiny, "tree")
    tiny.locator("#words .token").nth(7).click()
    tiny.click("#next-block")
    for name, value in {"depth": 5, "beside": 9, "c": 0.25, "batch": 2}.items():
        slide(tiny, name, value)
    state = "JSON.stringify([explore.view.run.prompt[explore.view.state.text], \
      explore.view.state.run, explore.view.state.shape, explore.view.state.position, \
      explore.view.state.step, explore.view.state.beside, explore.view.state.machine])"
    again = browser.new_page()
    again.goto(tiny.url)
    again.wait_for_selector(READY)
    assert again.evaluate(state) == tiny.evaluate(state)
    again.evaluate("location.hash = '#text=none&T=1&draft=chain:99'")
    assert again.evaluate(state) == tiny.evaluate(state), "no such place: nothing moves"


def test_words_are_found(tiny):
    strings = "[...explore.view.column('token')].map((t) => explore.view.trace.strings[t])"
    tiny.evaluate("explore.act.find('no such words anywhere')")
    assert tiny.inner_text("#found").startswith("not found, in the first 6 of 50 texts")
    last = tiny.evaluate(strings)[-2].strip()
    tiny.fill("#find", last.upper())
    tiny.press("#find", "Enter")
    position = tiny.evaluate("explore.view.state.position")
    shown = tiny.evaluate(strings)[position:]
    assert last.lower() in "".join(shown)[: len(shown[0] + last)].lower()
    number, count = map(int, tiny.inner_text("#found").partition(",")[0].split(" of "))
    tiny.press("#find", "Enter")
    assert tiny.inner_text("#found").startswith(f"{number % count + 1} of {count},")


def test_the_next_rejection_is_found(tiny):
    kinds = tiny.evaluate("explore.view.cut.tokens.map((t) => t.kind)")
    rejected = [place for place, kind in enumerate(kinds) if kind == "recovered"]
    tiny.evaluate(f"explore.act.select({rejected[0]})")
    for place in rejected[1:4]:
        tiny.click("#next-rejection")
        assert tiny.evaluate("explore.view.state.position") == place
        assert tiny.is_visible("#words [aria-pressed=true]")


def test_the_same_text_is_aligned_with_another_gamma(tiny):
    tiny.click("#beside-part summary")
    slide(tiny, "beside", 4)
    kinds = "all => all.map((pair) => [...pair.children].map((e) => e.className))"
    rows = tiny.locator("#beside-words .pair").evaluate_all(kinds)
    assert all(upper == lower for upper, lower in rows), "gamma 4 is shown already"
    slide(tiny, "beside", 2)
    count, more, waste = tiny.evaluate("""() => {
      const { textSums } = explore.modules["model.js"];
      const { run, state } = explore.view;
      const of = (gamma) => textSums(run, state.text, { kind: "chain", gamma });
      const [four, two] = [of(4), of(2)];
      const wasted = (sums) => sums.drafted - sums.accepted;
      return [two.blocks, two.blocks - four.blocks, wasted(four) - wasted(two)];
    }""")
    assert tiny.locator("#beside-words .token:nth-child(2).starts").count() == count
    summary = tiny.inner_text("#beside-summary")
    assert str(more or "same number of target passes") in summary and str(waste) in summary


MEASURED = Costs(40.0, (1, 2, 4), (0.06, 0.07, 0.07), (1.0, 1.04, 1.2), 0.1, 0.2)


def test_the_measured_preset_is_offered_chosen_and_marked(browser, tmp_path):
    file = tmp_path / "explore.html"
    packed = trace_data.pack_runs([made_run()], ["word"] * 50_000)
    file.write_text(page.assemble(packed, measured=MEASURED, title="made"), encoding="utf-8")
    shown, wrong = opened(browser, file)
    pressed = shown.locator(".presets [aria-pressed=true]")
    assert pressed.all_inner_texts() == ["measured in notebook 10"]
    slide(shown, "c", 0.3)
    assert pressed.count() == 0 and "own values and measured" in shown.inner_text("#machine-source")
    assert "machine=0.3%2Cmeasured%2Cmeasured" in shown.url
    shown.get_by_role("button", name="like a processor").click()
    assert "assumed" in shown.inner_text("#machine-source") and pressed.count() == 1
    assert wrong == []


def test_a_lookup_is_a_draft_at_temperature_zero(tiny):
    """Chosen by the keyboard, kept in the address, and given up where nothing can be copied."""
    tiny.locator("[name=kind]").first.focus()
    tiny.keyboard.press("ArrowRight")
    tiny.keyboard.press("ArrowRight")
    assert focused(tiny) == ["kind", "lookup"]
    slide(tiny, "least", 3)
    slide(tiny, "otherwise", 0)
    assert "draft=lookup%3A3" in tiny.url
    pick(tiny, "T = 1")
    assert tiny.evaluate("explore.view.state.shape.kind") == "chain"
    assert tiny.is_disabled("[value=lookup]")
    assert tiny.is_visible("#lookup-choice"), "it does not vanish"
    assert "A lookup was recorded at T = 0 only" in tiny.inner_text("#note")


def focused(shown):
    return shown.evaluate(
        "[document.activeElement.name || document.activeElement.id, document.activeElement.value]"
    )


def test_the_tour_by_the_keyboard_alone(tiny):
    """From start to end, each step asks before it shows, and keeps the focus."""
    tiny.focus("#tour-next")
    tiny.keyboard.press("Enter")
    for _ in range(tiny.evaluate("explore.view.steps.length")):
        assert focused(tiny)[0] == "tour"
        assert tiny.inner_text("#tour-answer") == ""
        while focused(tiny)[0] != "tour-show":
            tiny.keyboard.press("Tab")
        tiny.keyboard.press("Enter")
        assert tiny.inner_text("#tour-answer") and focused(tiny)[0] == "tour-next"
        tiny.keyboard.press("Enter")
    assert "The end of the tour" in tiny.inner_text("#tour-name")


def test_the_first_guess_of_a_step_counts(tiny):
    rights = tiny.evaluate("explore.view.steps.map((step) => step.right)")
    assert len({*rights}) > 1, "not always the same button"
    for number, right in enumerate([(rights[0] + 1) % 3, *rights[1:], rights[0]]):
        tiny.evaluate(f"explore.act.tour({number % len(rights)}); explore.act.guess({right})")
        assert tiny.inner_text("#tour-count").startswith(f"{min(number, len(rights) - 1)} of")


def test_each_right_guess_agrees_with_the_answer(tiny):
    """Counted again from the replay: tokens of a pass, passes saved, tokens kept, fastest gamma."""
    tiny.evaluate("explore.act.tour(0)")
    assert tiny.locator("#words .block.later").first.is_hidden(), "its tokens are not given away"
    written = tiny.locator("#words .block:not(.later) .token").count()
    guesses, right = tiny.evaluate("[explore.view.steps[0].guesses, explore.view.steps[0].right]")
    tiny.evaluate("explore.act.showAnswer()")
    more = tiny.locator("#words .block:not(.later) .token").count() - written
    assert guesses[right] == str(more)
    for number in (1, 2, 3, 5):
        found = tiny.evaluate(
            """(number) => {
          const { steps, trace, machines } = explore.view;
          const { before, after, guesses, right } = steps[number];
          const { textSums } = explore.modules["model.js"];
          const { choiceOf } = explore.modules["machine_view.js"];
          const run = trace.runs[after.run];
          const sums = (gamma) => textSums(run, after.text, { kind: "chain", gamma });
          const own = sums(4);
          explore.act.change(after);
          const { blocks, tokens } = explore.view.cut;
          const { settings, best } = choiceOf(explore.view, run.domain[0]);
          return { 1: 100 * (1 - sums(16).blocks / own.blocks), 2: own.emitted / own.blocks,
            3: after.position !== null && blocks[tokens[after.position].block].accepted,
            5: settings[best].shape.gamma, guess: guesses[right] }; }""",
            number,
        )
        value, guess = found[str(number)], found["guess"]
        if "plain" in guess or guess.startswith(("less", "fewer")):
            assert value < (float(re.findall(r"[\d.]+", guess)[0]) if "plain" not in guess else 1)
        elif "more" in guess:
            assert value >= float(re.findall(r"[\d.]+", guess)[0])
        else:
            low, *high = map(float, re.findall(r"[\d.]+", guess))
            assert low - 0.5 <= value <= (high or [low])[0] + 0.5


def test_numbers_of_some_texts_say_so(tiny):
    """The page does not hold all texts, and says of which ones its numbers are."""
    tiny.evaluate("explore.act.find('e'); explore.act.tour(2)")
    for name in ("gamma-words", "machine-words", "timeline-words", "found", "tour-words"):
        assert "the first 6 of 50 texts per domain" in tiny.inner_text(f"#{name}"), name


LANES = ("drafted", "plain")


def test_two_lanes_on_one_clock(tiny, browser, tiny_file):
    """At the end of the faster lane it has its whole text, and plain decoding a token per pass."""
    slide(tiny, "c", 0)
    slide(tiny, "o", 0)
    lanes = [tiny.locator(f"#{lane}-words .block:not(.later) .token") for lane in LANES]
    counts = tiny.evaluate("[explore.view.cut.tokens.length, explore.view.cut.blocks.length]")
    assert [lane.count() for lane in lanes] == counts
    slide(tiny, "clock", 1)
    tiny.click("#clock-play")
    tiny.wait_for_timeout(600)
    assert tiny.evaluate("explore.view.state.clock") > 1
    still, _ = opened(browser, tiny_file, reduced_motion="reduce")
    assert still.is_hidden("#clock-play") and still.is_visible("#clock")


def test_words_are_drawn_and_grow_towards_p(tiny):
    tiny.click("#draw-100")
    tiny.click("#draw-1000")
    said = tiny.inner_text("#draws-words")
    assert "After 1,100 words" in said and "stays 0.29 away" in said
    assert tiny.is_disabled("[name=source][value=token]"), "T = 0 draws nothing"
    pick(tiny, "T = 1")
    pick(tiny, "the chosen token")
    tiny.click("#draw-1000")
    p, shares = tiny.evaluate("""() => {
      const { draws, position, text } = explore.view.state;
      const { factsAt } = explore.modules["details_view.js"];
      const best = factsAt(explore.view, position).best;
      return [best.map((row) => row.p), best.map((_, i) => draws.lossless[i] / draws.drawn)];
    }""")
    assert p == pytest.approx(shares, abs=0.06)


def test_on_a_phone_the_explanation_is_a_sheet(browser, tiny_file):
    size = {"width": 390, "height": 844}
    shown, wrong = opened(browser, tiny_file, viewport=size, has_touch=True)
    assert shown.is_hidden("#details")
    token = shown.locator("#words .token").nth(9)
    token.tap()
    shown.wait_for_timeout(700)
    place, sheet = token.bounding_box(), shown.locator("#details").bounding_box()
    assert 0 <= place["y"] <= sheet["y"] - place["height"], "the token is in sight"
    shown.tap("#details .close")
    assert shown.is_hidden("#details") and wrong == []


def test_a_study_of_one_prompt(browser, tmp_path):
    """One domain: no interval, and no sentence that compares domains."""
    both = [made_run(temperature, prompts=1) for temperature in (0, 1.0)]
    for run in both:
        for table in ("trace", "nodes"):
            run.__dict__[table] = getattr(run, table).query("domain == 'code'")
    shown, wrong = show_made(browser, tmp_path, both, ["word"] * 50_000)
    assert "too few prompts" in shown.inner_text("#gamma-note")
    assert "most tokens in" not in shown.inner_text("#gamma-words")
    shown.evaluate(
        "explore.view.steps.map((_, n) => [explore.act.tour(n), explore.act.showAnswer()])"
    )
    assert not re.search("undefined|NaN", shown.inner_text("body"))
    assert wrong == []


def test_temperature_one_is_an_expectation_with_a_seeded_draw(tiny):
    prompt = "explore.view.run.prompt[explore.view.state.text]"
    asked = tiny.evaluate(prompt)
    pick(tiny, "T = 1")
    assert tiny.evaluate(prompt) == asked
    expected = tiny.evaluate("""explore.modules["model.js"].textSums(explore.view.run,
      explore.view.state.text, explore.view.state.shape).blocks""")
    summary = tiny.inner_text("#summary")
    assert f"we expect {expected:.1f} passes" in summary and "seed 1" in summary
    before = tiny.inner_html("#words")
    tiny.get_by_role("button", name="Draw again").click()
    assert tiny.inner_html("#words") != before
    pick(tiny, "tree")
    assert "point-mass" in tiny.inner_text("#rule") and tiny.is_hidden("#draw-row")


def test_my_machine(tiny):
    def plain():
        """Whether plain decoding is the fastest, by domain."""
        rows = tiny.locator("#machine-table tbody tr").all_inner_texts()
        return [row.split("\t")[1] == "plain decoding" for row in rows]

    slide(tiny, "o", 0)
    slide(tiny, "c", 0)
    assert not any(plain())
    slide(tiny, "c", 1)
    assert all(plain())
    tiny.get_by_role("button", name="like a processor").click()
    assert tiny.inner_text("#knee-value") == "3 tokens"
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
    for _ in range(110):
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
    wanted = "gamma text middle play clock c knee o batch same domain kind draw-100 tour-next"
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
    assert NASTY[0] + "\ufffdright" in shown.inner_text("#asked")
    seen = "|".join(texts)
    assert "</script><script>window.hacked = 1</script>" in seen and "&lt;b&gt;" in seen
    unseen = "[\u202e\u2028\u2029\x00\x07\ud800]"
    assert not re.search(unseen, seen), "unseen marks are U+FFFD"
    assert max(map(len, texts)) <= 61, "a very long token is cut"
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390


# ---- parts, as notebooks show them ---------------------------------------------------------------


@pytest.mark.parametrize("parts", [("bench",), ("text", "tree"), ("gamma", "machine")])
def test_parts_in_a_frame(browser, tmp_path, parts, monkeypatch):
    outputs = []
    monkeypatch.delenv("SPECLAB_OUT", raising=False)
    monkeypatch.setattr("IPython.display.display", outputs.append)
    page.show(*parts, runs=[] if parts == ("bench",) else [made_run(), made_run(1.0)])
    file = tmp_path / "notebook.html"
    ready = '<body data-ready="yes">'  # the frame's own is waited for below
    file.write_text(f"<!doctype html><meta charset=utf-8>{ready}{outputs[0].data}")
    assert file.stat().st_size < 250_000
    shown, wrong = opened(browser, file, viewport={"width": 800, "height": 700})
    inside = shown.frame_locator("iframe")
    inside.locator(READY).wait_for()
    visible = [part for part in page.PARTS if inside.locator(f"#{part}-section").is_visible()]
    assert visible == [*parts]
    height, frame = inside.locator("body").evaluate("e => [e.offsetHeight + 4, innerHeight]")
    assert height == frame, "the frame is as high as its content"
    assert wrong == []
