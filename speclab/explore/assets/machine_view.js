// "My machine": what a block costs there, how much faster decoding gets, and when it does not pay.

import { lineChart, ticks } from "./chart.js";
import {
  blockPrices, breakEvenCost, costOf, fastest, partsOfBlock, passCost, speedup,
} from "./cost.js";
import { byId, el, fixed, inWords, listed, plural, put, svg, times, withInterval } from "./dom.js";
import { chainOf, gammaAxis, highest, intervalNote, looksOf, TREE_AT } from "./gamma_view.js";
import { BATCHES, KNEES, MEASURED } from "./machine.js";
import {
  domainInterval, domainSums, domainsOf, LARGEST_GAMMA, ofTexts, shapeWords, tokensPerPass, treeOf,
} from "./model.js";
import { depthOf } from "./replay.js";

const CHAINS = Array.from({ length: LARGEST_GAMMA }, (_, i) => chainOf(i + 1));

/** What a domain may be drafted with, what each is worth, and the best of it. */
export function choiceOf(view, domain) {
  const { run, state } = view;
  const shapes = state.shape.kind === "chain" ? CHAINS : [...CHAINS, state.shape];
  const drafts = shapes.map((shape) => {
    const tree = treeOf(shape);
    const sums = domainSums(run, domain, shape);
    const prices = blockPrices(tree, state.machine);
    return {
      shape,
      speedup: sums.emitted / costOf(sums, prices),
      bounds: domainInterval(run, domain, shape, prices),
      pays: breakEvenCost(sums, tree, state.machine),
      tokens: tokensPerPass(sums),
    };
  });
  const plain = { shape: chainOf(0), speedup: 1, bounds: null, pays: null, tokens: 1 };
  const settings = [plain, ...drafts];
  const best = fastest(settings.map((setting) => setting.speedup));
  const pays = Math.max(...drafts.map((draft) => draft.pays));
  return { domain, settings, best, pays };
}

function chartOf(choices, view, act) {
  const { shape } = view.state;
  const isApart = shape.kind !== "chain";
  const looks = looksOf(choices.map(({ domain }) => domain));
  const series = choices.map(({ domain, settings, best }) => {
    const chains = settings.slice(0, LARGEST_GAMMA + 1);
    const last = settings[settings.length - 1];
    return {
      name: domain,
      ...looks.get(domain),
      points: chains.map((setting, gamma) => [gamma, setting.speedup]),
      bounds: chains.map((setting) => setting.bounds),
      apart: isApart ? [TREE_AT, last.speedup] : null,
      apartBounds: isApart ? last.bounds : null,
      star: best > LARGEST_GAMMA ? "apart" : best,
    };
  });
  const all = choices.flatMap(({ settings }) => settings.map((setting) => setting.speedup));
  const high = Math.max(1.2, highest(series)) + 0.1;
  const low = Math.max(0, Math.min(...all) - 0.1);
  const width = byId("machine-picture").clientWidth;
  return lineChart({
    width,
    height: Math.min(380, Math.max(270, width * 0.55)),
    x: gammaAxis(0, shape),
    y: { low, high, ticks: ticks(low, high, 6) },
    series,
    reference: { y: 1, label: "plain" },
    chosen: isApart ? TREE_AT : shape.gamma,
    choose: (gamma) => gamma >= 1 && gamma <= LARGEST_GAMMA
      && act.change({ shape: chainOf(gamma) }),
    label: `Expected speed-up over plain decoding by gamma. ${sentenceOf(choices)}`,
  });
}

function gainOf({ domain, settings, best }) {
  const { speedup: gain, shape } = settings[best];
  return `${domain} (${times(gain)} with ${shapeWords(shape)})`;
}

/** Where drafting pays on this machine, and where it does not. */
export function sentenceOf(choices) {
  const paying = choices.filter(({ best }) => best > 0);
  const plain = choices.filter(({ best }) => best === 0).map(({ domain }) => domain);
  const all = choices.length === 1 ? choices[0].domain : `all ${inWords(choices.length)} domains`;
  if (!paying.length) {
    return `On this machine no draft is expected to pay. Plain decoding is fastest in ${all}.`;
  }
  paying.sort((a, b) => b.settings[b.best].speedup - a.settings[a.best].speedup);
  const pays = "On this machine drafting is expected to pay in";
  const most = gainOf(paying[0]);
  const rest = plain.length ? ` Plain decoding is fastest in ${listed(plain)}.` : "";
  if (paying.length === 1) return `${pays} ${most}.${rest}`;
  if (plain.length) {
    const names = listed(paying.map(({ domain }) => domain));
    return `${pays} ${names}. The gain is largest in ${most}.${rest}`;
  }
  const least = gainOf(paying[paying.length - 1]);
  return `${pays} ${all}. The gain is largest in ${most} and smallest in ${least}.`;
}

/** Up to which c some draft is faster than plain decoding. */
function whilePaying(pays) {
  if (pays === Infinity) return "any c";
  return pays > 0 ? `c < ${fixed(pays)}` : "never";
}

function tableOf(choices) {
  const head = ["domain", "fastest setting", "speed-up", "tokens per target pass", "pays while"];
  const looks = looksOf(choices.map(({ domain }) => domain));
  return el("table", { class: "best" },
    el("thead", null, el("tr", null, head.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", null, choices.map(({ domain, settings, best, pays }) => {
      const chosen = settings[best];
      return el("tr", null,
        el("th", { scope: "row" }, el("span", { class: `dot ${looks.get(domain).look}` }), domain),
        el("td", null, best ? "★ " : "", shapeWords(chosen.shape)),
        el("td", { class: "number" }, withInterval(chosen.speedup, chosen.bounds, "x")),
        el("td", { class: "number" }, fixed(chosen.tokens)),
        el("td", { class: "number" }, whilePaying(pays)));
    })));
}

const NAMES = { draft: "draft pass", target: "target pass" };
const LANE = { height: 26, left: 0, apart: 46, top: 18 };

function lane(parts, row, scale, name) {
  const y = LANE.top + row * LANE.apart;
  const group = svg("g", null, svg("text", { x: 0, y: y - 5, class: "lane-name" }, name));
  let x = LANE.left;
  for (const [kind, time] of parts) {
    const width = time * scale;
    group.append(svg("rect", { x: x + 0.5, y, width: Math.max(width - 1, 0.5),
      height: LANE.height, rx: 2, class: `part ${kind}` }));
    if (width > 80) {
      group.append(svg("text", { x: x + width / 2, y: y + 17, "text-anchor": "middle",
        class: `part-name ${kind}` }, NAMES[kind] ?? ""));
    }
    x += width;
  }
  return group;
}

function plainParts(tokens) {
  const parts = Array.from({ length: Math.floor(tokens + 1e-9) }, () => ["target", 1]);
  const rest = tokens - parts.length;
  return rest > 1e-9 ? [...parts, ["target rest", rest]] : parts;
}

/** The mean parts of blocks of different kinds. */
function averageParts(sums, tree, machine) {
  const means = new Map();
  sums.byLevels.forEach((blocks, levels) => {
    if (!blocks) return;
    for (const [kind, time] of partsOfBlock(tree, levels, machine)) {
      means.set(kind, (means.get(kind) ?? 0) + (blocks * time) / sums.blocks);
    }
  });
  return ["draft", "target", "loop"].filter((kind) => means.has(kind))
    .map((kind) => [kind, means.get(kind)]);
}

/** One whole block of the chosen setting beside plain decoding of as many tokens. */
function drawTimeline(view) {
  const { run, state } = view;
  const domain = run.domain[state.text];
  const tree = treeOf(state.shape);
  const sums = domainSums(run, domain, state.shape);
  const tokens = tokensPerPass(sums);
  const isMixed = state.shape.kind === "lookup";
  const block = isMixed ? averageParts(sums, tree, state.machine)
    : partsOfBlock(tree, depthOf(tree), state.machine);
  const time = block.reduce((sum, [, part]) => sum + part, 0);
  const width = byId("timeline").clientWidth;
  const scale = width / Math.max(time, tokens);
  const height = LANE.top + LANE.apart + LANE.height + 4;
  const gain = speedup(sums, tree, state.machine);
  const one = isMixed ? "an average block" : "a block";
  const words = `In ${domain} ${one} with ${shapeWords(state.shape)} takes ${fixed(time)} target `
    + `passes. Plain decoding takes ${fixed(tokens)} for the same number of tokens, so the `
    + `expected speed-up is ${times(gain)}.${ofTexts(view.trace)}`;
  put("timeline-words", words);
  put("timeline", svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": words },
    lane(block, 0, scale, isMixed ? "an average block" : "one block"),
    lane(plainParts(tokens), 1, scale, "plain decoding of the same number of tokens")));
}

const SOURCES = {
  accelerator: "These values are assumed. Set the values of your machine.",
  processor: "These values are assumed. Set the values of your machine.",
  [MEASURED]: "Notebook 10 measured these values on the machine that wrote this page.",
};

/** The machine's values beside their sliders, where they come from, and which preset is chosen. */
export function drawMachineSettings({ state: { machine }, run, trace }) {
  byId("c").value = machine.c;
  byId("knee").value = KNEES.indexOf(machine.knee);
  byId("o").value = machine.o;
  byId("batch").value = BATCHES.indexOf(machine.batch);
  put("c-value", fixed(machine.c));
  const five = passCost(5, { ...machine, batch: 1 });
  put("knee-value", machine.verify ? `measured, v(5) = ${fixed(five)}`
    : plural(machine.knee, "token"));
  put("o-value", fixed(machine.o));
  put("batch-value", machine.batch);
  for (const name of Object.keys(SOURCES)) {
    byId(name).setAttribute("aria-pressed", machine.preset === name);
  }
  const isMixed = machine.draft || machine.verify || machine.treeLoop !== null;
  put("machine-source", SOURCES[machine.preset]
    ?? (isMixed ? "These are your own values and measured ones." : "These are your own values."),
    machine.draft && run.draft !== trace.runs[0].draft
      ? ` The draft passes are those of ${trace.runs[0].draft}; choose c for ${run.draft}.` : "");
}

export function drawMachine(view, act) {
  const choices = domainsOf(view.run).map((domain) => choiceOf(view, domain));
  put("machine-words", sentenceOf(choices), ofTexts(view.trace));
  put("machine-picture", chartOf(choices, view, act));
  const { kind } = view.state.shape;
  const other = kind === "chain" ? "" : ` and the chosen ${kind}`;
  put("machine-note", `★ marks the fastest of plain decoding, gamma 1 to 16${other}. The last `
    + "column tells up to which c some draft is faster than plain decoding. "
    + intervalNote(view.run));
  put("machine-table", tableOf(choices));
  drawTimeline(view);
}
