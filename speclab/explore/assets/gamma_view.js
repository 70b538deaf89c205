// Tokens per target pass by gamma: every domain, and the text that is shown.

import { lineChart, ticks } from "./chart.js";
import { byId, el, fixed, put, withInterval } from "./dom.js";
import {
  chosenWords, domainInterval, domainSums, domainsOf, draftsOf, hasCopies, isDrafted, LARGEST_GAMMA,
  ofTexts, runOf, shapeWords, textSums, tokensPerPass,
} from "./model.js";

const MARKERS = ["circle", "square", "diamond", "triangle", "block", "tip", "saltire", "frame", "thin",
  "pentagon", "hexagon", "plus"];
const FIXED = { code: 0, math: 1, reasoning: 2, chat: 3, instructcoder: 0, gsm8k: 1, cnn: 2,
  sharegpt: 3 };
export const TREE_AT = LARGEST_GAMMA + 2; // where the points of a tree or a lookup stand, beside the chains'

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

/** The x axis of a chart by gamma, from `first`; with a place for a chosen tree or lookup. */
export function gammaAxis(first, shape) {
  const names = [first, 4, 8, 12, 16]; // as in the figures
  const isApart = shape.kind !== "chain";
  return {
    low: first,
    high: isApart ? TREE_AT + 0.6 : LARGEST_GAMMA,
    ticks: isApart ? [...names, [TREE_AT, shape.kind]] : names,
    label: "gamma (drafted tokens per target pass)",
  };
}

function seriesOf(view) {
  const { run, state } = view;
  const other = state.shape.kind === "chain" ? null : state.shape;
  const looks = looksOf(domainsOf(run));
  const lines = domainsOf(run).map((domain) => {
    const at = (shape) => tokensPerPass(domainSums(run, domain, shape));
    return {
      name: domain,
      ...looks.get(domain),
      points: GAMMAS.map((gamma) => [gamma, at(chainOf(gamma))]),
      bounds: GAMMAS.map((gamma) => domainInterval(run, domain, chainOf(gamma))),
      apart: other && [TREE_AT, at(other)],
      apartBounds: other && domainInterval(run, domain, other),
    };
  });
  const own = (shape) => tokensPerPass(textSums(run, state.text, shape));
  lines.push({
    name: "this text",
    look: "own-text",
    marker: "cross",
    points: GAMMAS.map((gamma) => [gamma, own(chainOf(gamma))]),
    apart: other && [TREE_AT, own(other)],
  });
  return lines;
}

function tableOf(lines, shape) {
  const gammas = [1, 2, 3, 4, 6, 8, 12, 16];
  const isApart = shape.kind !== "chain";
  const head = ["", ...gammas.map((gamma) => `gamma ${gamma}`)];
  if (isApart) head.push(shapeWords(shape));
  const rows = lines.map((line) => {
    const cells = gammas.map((gamma) =>
      withInterval(line.points[gamma - 1][1], line.bounds?.[gamma - 1]));
    if (isApart) cells.push(withInterval(line.apart[1], line.apartBounds));
    return el("tr", null, el("th", { scope: "row" }, line.name),
      cells.map((cell) => el("td", { class: "number" }, cell)));
  });
  return el("table", null,
    el("thead", null, el("tr", null, head.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", null, rows));
}

/** Where a target pass yields most and fewest tokens, and what the chosen text yields. */
function sentenceOf(domains, own, name) {
  const [most] = domains;
  const fewest = domains[domains.length - 1];
  const text = `The chosen text has ${fixed(own)}.`;
  if (most === fewest) {
    return `With ${name} one target pass yields ${fixed(most.value)} tokens on average. ${text}`;
  }
  return `With ${name} one target pass yields the most tokens in ${most.name} `
    + `(${fixed(most.value)}) and the fewest in ${fewest.name} (${fixed(fewest.value)}). ${text}`;
}

/** Tokens per target pass of all texts, for each draft of a page that has two. */
function draftsWords({ trace, run }, shape) {
  if (!isDrafted(shape)) return "";
  const drafts = draftsOf(trace).map((draft) => trace.runs[runOf(trace, draft, run.temperature)]);
  const there = drafts.filter((one) => one && (shape.kind !== "lookup" || hasCopies(one)));
  if (there.length < 2) return "";
  const values = there.map((one) =>
    `${fixed(tokensPerPass(domainSums(one, null, shape)))} with ${one.draft}`);
  return ` Over all texts it yields ${values.join(" and ")}.`;
}

export function drawGamma(view, act) {
  const { run, state: { shape } } = view;
  const lines = seriesOf(view);
  const isChain = shape.kind === "chain";
  const valueOf = (line) => (isChain ? line.points[shape.gamma - 1][1] : line.apart[1]);
  const domains = lines.slice(0, -1)
    .map((line) => ({ name: line.name, value: valueOf(line) }))
    .sort((a, b) => b.value - a.value);
  const sentence = sentenceOf(domains, valueOf(lines[lines.length - 1]), chosenWords(view));
  put("gamma-words", sentence, draftsWords(view, shape), ofTexts(view.trace));
  put("gamma-note", `${intervalNote(run)} Click a gamma to choose it.`);
  const high = highest(lines) + 0.2;
  const width = byId("gamma-picture").clientWidth;
  put("gamma-picture", lineChart({
    width,
    height: Math.min(380, Math.max(260, width * 0.5)),
    x: gammaAxis(1, shape),
    y: { low: 1, high, ticks: ticks(1, high, 6) },
    series: lines,
    chosen: isChain ? shape.gamma : TREE_AT,
    choose: (gamma) => gamma <= LARGEST_GAMMA && act.change({ shape: chainOf(gamma) }),
    label: `Tokens per target pass by gamma. ${sentence}`,
  }));
  put("gamma-table", tableOf(lines, shape));
}

/** The largest value of lines, their points apart and the ends of their intervals. */
export function highest(lines) {
  const values = lines.flatMap(({ points, apart, bounds, apartBounds }) => [
    ...points.map(([, value]) => value),
    ...(apart ? [apart[1]] : []),
    ...[...(bounds ?? []), apartBounds].flatMap((pair) => (pair ? [pair[1]] : [])),
  ]);
  return Math.max(...values);
}

/** What the bands mean, or why there are none. */
export function intervalNote(run) {
  const domains = domainsOf(run);
  const without = domains.filter((domain) => !run.levels[domain]);
  if (!without.length) return "Bands and brackets: 95 % intervals over prompts.";
  if (without.length === domains.length) return "There are too few prompts for intervals.";
  return "Bands and brackets: 95 % intervals over prompts, where a domain has five or more.";
}
