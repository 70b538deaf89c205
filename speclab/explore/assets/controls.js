// What is chosen: the domain, the text, the temperature, the draft's shape, the machine.

import { runClock, stopClock, tellTime } from "./clock_view.js";
import { byId, el, put, seen, shortened } from "./dom.js";
import { chainOf } from "./gamma_view.js";
import { BATCHES, changed, KNEES } from "./machine.js";
import { drawMachineSettings } from "./machine_view.js";
import {
  domainsOf, draftsOf, hasCopies, middleText, ruleOf, runOf, textsOf,
} from "./model.js";

const RULES = {
  greedy: "Rule (greedy): a drafted token is kept if it is the target's most probable token.",
  rejection: "Rule (rejection): the draft draws tokens from q, and each is kept with min(1, p/q).",
  "point-mass": "Rule (point-mass): the draft proposes its most probable tokens, and each is kept "
    + "with the probability that the target gives it.",
};

const LOOKUP_IS = "What followed the same tokens before is copied";
export const NO_LOOKUP = "A lookup was recorded at T = 0 only";

const SHAPES = {
  chain: "Draft (chain): tokens in a row.",
  tree: "Draft (tree): several choices for each token, up to the budget of drafted tokens.",
  lookup: "Draft (lookup): where the last tokens stood before in the prompt or the text, what followed "
    + "them is copied, up to 16 tokens. A copy needs no draft pass.",
};

function choice(group, value, label, chosen) {
  return el("label", null,
    el("input", { type: "radio", name: group, value, onchange: chosen }),
    el("span", null, label));
}

/** The choices of this page, written once, so that the one that has the focus keeps it. */
export function writeChoices(view, act) {
  const { trace, state } = view;
  const temperatures = [...new Set(trace.runs.map((run) => run.temperature))];
  byId("temperature-row").hidden = temperatures.length < 2;
  put("temperatures", temperatures.map((value) => choice("temperature", value, `T = ${value}`,
    () => act.toRun(runOf(trace, view.run.draft, value)))));
  const drafts = draftsOf(trace);
  for (const id of ["model-row", "beside-models"]) byId(id).hidden = drafts.length < 2;
  put("models", drafts.map((draft) => choice("model", draft, draft,
    () => act.toDraft(runOf(trace, draft, view.run.temperature)))));
  put("beside-model", drafts.map((draft) => choice("beside-model", draft, draft,
    () => act.beside({ besideDraft: draft }))));
  if (drafts.length > 1) put("beside-title", "The same text with another gamma or draft");
  put("domains", domainsOf(trace.runs[0]).map((domain) => choice("domain", domain, domain, () =>
    act.change({ text: middleText(view.run, domain, state.shape), position: null }))));
}

function check(group, value) {
  for (const input of document.querySelectorAll(`[name=${group}]`)) {
    input.checked = input.value === String(value);
  }
}

/** A choice that no run of this page belongs to cannot be chosen. */
function allow(group, trace, wanted) {
  for (const input of document.querySelectorAll(`[name=${group}]`)) {
    input.disabled = runOf(trace, ...wanted(input.value)) < 0;
    input.parentElement.title = input.disabled ? "This draft was not recorded at this temperature"
      : "";
  }
}

/** Which domain, temperature and text are chosen. */
export function drawChoices(view) {
  const { run, state, trace } = view;
  check("temperature", run.temperature);
  check("model", run.draft);
  allow("temperature", trace, (value) => [run.draft, Number(value)]);
  for (const group of ["model", "beside-model"]) {
    allow(group, trace, (draft) => [draft, run.temperature]);
  }
  check("domain", run.domain[state.text]);
  writeTexts(view);
}

function writeTexts(view) {
  const { trace, run, state } = view;
  const options = textsOf(run, run.domain[state.text]).map((text) => {
    const name = run.prompt[text];
    const asked = shortened(seen(trace.prompts[name] ?? "").replace(/\s+/g, " "), 60);
    return el("option", { value: text, selected: text === state.text },
      asked ? `${name}: ${asked}` : name);
  });
  put("text", options);
  byId("text").value = state.text;
}

/** Values beside the sliders, and which sliders are shown. */
export function drawSettings(view) {
  const { state, run, trace } = view;
  const { shape } = state;
  for (const kind of ["chain", "tree", "lookup"]) byId(`${kind}-row`).hidden = kind !== shape.kind;
  byId("lookup-choice").hidden = !trace.runs.some(hasCopies);
  byId("lookup-choice").title = hasCopies(run) ? LOOKUP_IS : NO_LOOKUP;
  document.querySelector("[value=lookup]").disabled = !hasCopies(run);
  check("kind", shape.kind);
  const values = { ...shape, otherwise: shape.gamma };
  for (const name of ["gamma", "depth", "branches", "budget", "least", "otherwise"]) {
    if (values[name] === undefined) continue;
    byId(name).value = values[name];
    put(`${name}-value`, values[name]);
  }
  byId("draw-row").hidden = ruleOf(run, shape) !== "rejection";
  put("seed-value", state.seed);
  put("rule", `${SHAPES[shape.kind]} ${RULES[ruleOf(run, shape)]}`);
  drawMachineSettings(view);
}

/** What the sliders and buttons do, once. */
export function listen(view, act) {
  const on = (id, event, run) => byId(id).addEventListener(event, run);
  const number = (event) => Number(event.target.value);
  on("text", "change", (event) => act.change({ text: number(event), position: null }));
  on("middle", "click", () => {
    const domain = view.run.domain[view.state.text];
    act.change({ text: middleText(view.run, domain, view.state.shape), position: null });
  });
  on("previous-text", "click", () => act.nextText(-1));
  on("next-text", "click", () => act.nextText(1));
  on("gamma", "input", (event) => act.change({ shape: chainOf(number(event)) }));
  for (const name of ["depth", "branches", "budget"]) {
    on(name, "input", (event) =>
      act.change({ shape: { ...view.state.shape, [name]: number(event) } }));
  }
  const lookup = (change) => act.change({ shape: { ...view.state.shape, ...change } });
  on("least", "input", (event) => lookup({ least: number(event) }));
  on("otherwise", "input", (event) => lookup({ gamma: number(event) }));
  for (const kind of document.querySelectorAll("[name=kind]")) {
    kind.addEventListener("change", () =>
      act.change({ shape: view.state.lastOf[kind.value] }));
  }
  on("draw", "click", () => act.change({ seed: view.state.seed + 1 }));
  on("first-block", "click", () => act.step(0));
  on("previous-block", "click", () => act.stepBy(-1));
  on("next-block", "click", () => act.stepBy(1));
  on("all-blocks", "click", () => act.step(null));
  on("play", "click", () => act.play());
  on("next-rejection", "click", () => act.nextRejection());
  on("find", "keydown", (event) => {
    if (event.key === "Enter") act.find(event.target.value.trim());
  });
  on("beside", "input", (event) => act.beside({ beside: number(event) }));
  on("beside-part", "toggle", () => act.beside({}));
  const machine = (name, value) => act.machine(changed(view.state.machine, name, value));
  on("c", "input", (event) => machine("c", number(event)));
  on("knee", "input", (event) => machine("knee", KNEES[number(event)]));
  on("o", "input", (event) => machine("o", number(event)));
  on("batch", "input", (event) => machine("batch", BATCHES[number(event)]));
  byId("measured").hidden = !view.machines.measured;
  for (const [name, preset] of Object.entries(view.machines)) {
    on(name, "click", () => act.machine({ ...preset, batch: view.state.machine.batch }));
  }
  on("clock-play", "click", () => runClock(view));
  on("clock", "input", (event) => {
    stopClock();
    view.state.clock = number(event);
    tellTime(view);
  });
  on("copy-link", "click", () => act.copyLink());
  on("tour-next", "click", () => act.tour(view.tour.number + 1));
  on("tour-show", "click", () => act.showAnswer());
  addEventListener("keydown", (event) => event.key === "Escape" && act.closeSheet());
  on("words", "keydown", (event) => {
    const moves = { ArrowRight: 1, ArrowLeft: -1 };
    if (event.key in moves) act.select(view.state.position + moves[event.key], true);
    else if (event.key === "ArrowDown") act.toBlock(1);
    else if (event.key === "ArrowUp") act.toBlock(-1);
    else if (event.key === "Home") act.select(0, true);
    else if (event.key === "End") act.select(view.cut.tokens.length - 1, true);
    else return;
    event.preventDefault();
  });
}

/** The buttons of the five words, which need no run. */
export function listenToBench(view, act) {
  const on = (id, run) => byId(id).addEventListener("click", run);
  on("same", () => act.bench({ q: [...view.state.bench.p] }));
  on("reset", () => act.bench(null));
  on("draw-100", () => act.drawWords(100));
  on("draw-1000", () => act.drawWords(1000));
  on("draws-reset", () => act.drawAnew({ seed: view.state.draws.seed + 1 }));
  for (const source of document.querySelectorAll("[name=source]")) {
    source.addEventListener("change", () => act.drawAnew({ source: source.value }));
  }
}
