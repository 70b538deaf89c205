// What is chosen: the domain, the text, the temperature, the draft's shape, the machine.

import { byId, el, fixed, put, seen, shortened } from "./dom.js";
import { chainOf } from "./gamma_view.js";
import { KNEES, MACHINES } from "./machine_view.js";
import { domainsOf, middleText, ruleOf, textsOf } from "./model.js";

export const FIRST_TREE = { kind: "tree", depth: 3, branches: 2, budget: 8 };

function choice(group, value, label, checked, chosen) {
  return el("label", null,
    el("input", { type: "radio", name: group, value, checked, onchange: chosen }),
    el("span", null, label));
}

function temperatureName(run) {
  return `T = ${run.temperature}`;
}

/** The controls whose choices depend on the run, written again. */
export function drawChoices(view, act) {
  const { trace, run, state } = view;
  byId("temperature-row").hidden = trace.runs.length < 2;
  put("temperatures", trace.runs.map((other, number) =>
    choice("temperature", number, temperatureName(other), other === run,
      () => act.toRun(number))));
  put("domains", domainsOf(run).map((domain) =>
    choice("domain", domain, domain, run.domain[state.text] === domain,
      () => act.change({ text: middleText(run, domain, state.shape), position: null }))));
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
  const { state, run } = view;
  const { shape, machine } = state;
  const chain = shape.kind === "chain";
  byId("chain-row").hidden = !chain;
  byId("tree-row").hidden = chain;
  document.querySelector(`[name=kind][value=${shape.kind}]`).checked = true;
  if (chain) byId("gamma").value = shape.gamma;
  else for (const name of ["depth", "branches", "budget"]) byId(name).value = shape[name];
  for (const name of ["gamma", "depth", "branches", "budget"]) {
    if (shape[name] !== undefined) byId(`${name}-value`).textContent = shape[name];
  }
  byId("c").value = machine.c;
  byId("knee").value = KNEES.indexOf(machine.knee);
  byId("o").value = machine.o;
  byId("c-value").textContent = fixed(machine.c);
  byId("knee-value").textContent = machine.knee;
  byId("o-value").textContent = fixed(machine.o);
  byId("draw-row").hidden = ruleOf(run, shape) !== "rejection";
  byId("seed-value").textContent = state.seed;
  const words = { greedy: "greedy", rejection: "rejection (drawn from q)",
    "point-mass": "point-mass (the draft's best tokens)" };
  put("rule", `Rule: ${words[ruleOf(run, shape)]}`);
}

/** What the sliders and buttons do, once. measured: the machine of notebook 10, if it is known. */
export function listen(view, act, measured) {
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
  for (const kind of document.querySelectorAll("[name=kind]")) {
    kind.addEventListener("change", () =>
      act.change({ shape: kind.value === "chain" ? chainOf(4) : { ...FIRST_TREE } }));
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
  on("beside", "input", (event) => act.beside(number(event)));
  on("beside-part", "toggle", () => act.beside(view.state.beside));
  const machine = (change) => act.machine({ ...view.state.machine, ...change });
  on("c", "input", (event) => machine({ c: number(event) }));
  on("knee", "input", (event) => machine({ knee: KNEES[number(event)] }));
  on("o", "input", (event) => machine({ o: number(event) }));
  for (const name of Object.keys(MACHINES)) {
    on(name, "click", () => act.machine({ ...MACHINES[name] }));
  }
  byId("measured").hidden = !measured;
  on("measured", "click", () => {
    const knee = KNEES.filter((known) => known <= measured.knee).pop();
    act.machine({ ...measured, knee });
  });
  on("same", "click", () => act.bench({ q: [...view.state.bench.p] }));
  on("reset", "click", () => act.bench(null));
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

