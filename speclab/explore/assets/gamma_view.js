// Tokens per target pass by gamma: every domain, and the text that is shown.

import { lineChart, ticks } from "./chart.js";
import { byId, el, fixed, put } from "./dom.js";
import { domainSums, domainsOf, LARGEST_GAMMA, nameOf, textSums, tokensPerPass } from "./model.js";

const MARKERS = ["circle", "square", "diamond", "triangle", "block", "tip", "saltire", "star", "thin",
  "pentagon", "hexagon", "plus"];
const FIXED = { code: 0, math: 1, reasoning: 2, chat: 3, instructcoder: 0, gsm8k: 1, cnn: 2,
  sharegpt: 3 };
export const TREE_AT = LARGEST_GAMMA + 2; // where a tree's points stand, beside the chains'

const GAMMAS = Array.from({ length: LARGEST_GAMMA }, (_, i) => i + 1);

export function chainOf(gamma) {
  return { kind: "chain", gamma };
}

/** Class and marker of each domain, as in the figures (speclab/show/figures.py, looks_of): fixed for
 * the kit's own, else in order of appearance; twelve differ. */
export function looksOf(domains) {
  const fixed = domains.map((domain) => (Object.hasOwn(FIXED, domain) ? FIXED[domain] : null));
  const free = MARKERS.map((_, look) => look).filter((look) => !fixed.includes(look));
  let next = 0;
  return new Map(domains.map((domain, i) => {
    const look = fixed[i] ?? free[next++ % free.length];
    return [domain, { look: `look-${look}`, marker: MARKERS[look] }];
  }));
}

/** The x axis of a chart by gamma, from `first`; with a place for the chosen tree, if there is. */
export function gammaAxis(first, shape) {
  const names = [first, 2, 4, 6, 8, 10, 12, 14, 16];
  const tree = shape.kind === "tree";
  return {
    low: first,
    high: tree ? TREE_AT + 0.6 : LARGEST_GAMMA,
    ticks: tree ? [...names, [TREE_AT, "tree"]] : names,
    label: "gamma (draft tokens proposed)",
  };
}

function seriesOf(view) {
  const { run, state } = view;
  const tree = state.shape.kind === "tree" ? state.shape : null;
  const looks = looksOf(domainsOf(run));
  const lines = domainsOf(run).map((domain) => {
    const at = (shape) => tokensPerPass(domainSums(run, domain, shape));
    return {
      name: domain,
      ...looks.get(domain),
      points: GAMMAS.map((gamma) => [gamma, at(chainOf(gamma))]),
      apart: tree && [TREE_AT, at(tree)],
    };
  });
  const own = (shape) => tokensPerPass(textSums(run, state.text, shape));
  lines.push({
    name: "this text",
    look: "own-text",
    marker: "cross",
    points: GAMMAS.map((gamma) => [gamma, own(chainOf(gamma))]),
    apart: tree && [TREE_AT, own(tree)],
  });
  return lines;
}

function tableOf(lines, shape) {
  const gammas = [1, 2, 3, 4, 6, 8, 12, 16];
  const tree = shape.kind === "tree";
  const head = ["", ...gammas, ...(tree ? [nameOf(shape)] : [])];
  const rows = lines.map((line) => {
    const values = gammas.map((gamma) => line.points[gamma - 1][1]);
    if (tree) values.push(line.apart[1]);
    return el("tr", null, el("th", { scope: "row" }, line.name),
      values.map((value) => el("td", { class: "number" }, fixed(value))));
  });
  return el("table", null,
    el("thead", null, el("tr", null, head.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", null, rows));
}

export function drawGamma(view, act) {
  const { shape } = view.state;
  const lines = seriesOf(view);
  const chain = shape.kind === "chain";
  const valueOf = (line) => (chain ? line.points[shape.gamma - 1][1] : line.apart[1]);
  const domains = lines.slice(0, -1).sort((a, b) => valueOf(b) - valueOf(a));
  const listed = domains.map((line) => `${line.name} ${fixed(valueOf(line))}`).join(", ");
  const own = fixed(valueOf(lines[lines.length - 1]));
  const name = chain ? `gamma = ${shape.gamma}` : nameOf(shape);
  put("gamma-words", `With ${name} a target pass gives: ${listed}. The chosen text: ${own}.`);
  const all = lines.flatMap((line) => [...line.points, ...(line.apart ? [line.apart] : [])]);
  const high = Math.max(...all.map(([, value]) => value)) + 0.2;
  const width = byId("gamma-picture").clientWidth;
  put("gamma-picture", lineChart({
    width,
    height: Math.min(380, Math.max(260, width * 0.5)),
    x: gammaAxis(1, shape),
    y: { low: 1, high, ticks: ticks(1, high, 6) },
    series: lines,
    chosen: chain ? shape.gamma : TREE_AT,
    choose: (gamma) => gamma <= LARGEST_GAMMA && act.change({ shape: chainOf(gamma) }),
    label: `Tokens per target pass by gamma. With ${name}: ${listed}; this text ${own}.`,
  }));
  put("gamma-table", tableOf(lines, shape));
}
