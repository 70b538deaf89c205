// "My machine": what a block costs there, how much faster decoding gets, and when it does not pay.

import { lineChart, ticks } from "./chart.js";
import { blockPrices, breakEvenCost, fastest, partsOfBlock, speedup } from "./cost.js";
import { byId, el, fixed, put, svg } from "./dom.js";
import { chainOf, gammaAxis, looksOf, TREE_AT } from "./gamma_view.js";
import { domainSums, domainsOf, LARGEST_GAMMA, nameOf, tokensPerPass, treeOf } from "./model.js";

export const KNEES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128];
export const MACHINES = {
  accelerator: { c: 0.1, knee: 64, o: 0.05 },
  processor: { c: 0.1, knee: 3, o: 0.1 },
};

const CHAINS = Array.from({ length: LARGEST_GAMMA }, (_, i) => chainOf(i + 1));

/** What a domain may be drafted with, what each is worth, and the best of it. */
export function choiceOf(view, domain) {
  const { run, state } = view;
  const shapes = state.shape.kind === "tree" ? [...CHAINS, state.shape] : CHAINS;
  const drafts = shapes.map((shape) => {
    const tree = treeOf(shape);
    const sums = domainSums(run, domain, shape);
    return {
      shape,
      speedup: speedup(sums, tree, state.machine),
      pays: breakEvenCost(sums, tree, state.machine),
      tokens: tokensPerPass(sums),
    };
  });
  const plain = { shape: chainOf(0), speedup: 1, pays: null, tokens: 1 };
  const settings = [plain, ...drafts];
  const best = fastest(settings.map((setting) => setting.speedup));
  const pays = Math.max(...drafts.map((draft) => draft.pays));
  return { domain, settings, best, pays };
}

function chartOf(choices, view, act) {
  const { shape } = view.state;
  const tree = shape.kind === "tree";
  const looks = looksOf(choices.map(({ domain }) => domain));
  const series = choices.map(({ domain, settings, best }) => {
    const chains = settings.slice(0, LARGEST_GAMMA + 1);
    const apart = tree ? [TREE_AT, settings[settings.length - 1].speedup] : undefined;
    return {
      name: domain,
      ...looks.get(domain),
      points: chains.map((setting, gamma) => [gamma, setting.speedup]),
      apart,
      star: best > LARGEST_GAMMA ? "apart" : best,
    };
  });
  const all = choices.flatMap(({ settings }) => settings.map((setting) => setting.speedup));
  const high = Math.max(1.2, ...all) + 0.1;
  const low = Math.max(0, Math.min(...all) - 0.1);
  const width = byId("machine-picture").clientWidth;
  return lineChart({
    width,
    height: Math.min(380, Math.max(270, width * 0.55)),
    x: gammaAxis(0, shape),
    y: { low, high, ticks: ticks(low, high, 6) },
    series,
    reference: { y: 1, label: "plain" },
    chosen: tree ? TREE_AT : shape.gamma,
    choose: (gamma) => gamma >= 1 && gamma <= LARGEST_GAMMA
      && act.change({ shape: chainOf(gamma) }),
    label: `Expected speed-up over plain decoding by gamma. ${inWords(choices)}`,
  });
}

function inWords(choices) {
  const paying = choices.filter(({ best }) => best > 0);
  const lost = choices.filter(({ best }) => best === 0).map(({ domain }) => domain);
  paying.sort((a, b) => b.settings[b.best].speedup - a.settings[a.best].speedup);
  const gains = paying.map(({ domain, settings, best }) =>
    `${domain} ${fixed(settings[best].speedup)} times with ${nameOf(settings[best].shape)}`);
  if (!gains.length) return "On this machine no draft pays, in no domain: decode plainly.";
  const rest = lost.length ? ` For ${lost.join(", ")} plain decoding is the fastest.` : "";
  return `Faster than plain decoding on this machine: ${gains.join(", ")}.${rest}`;
}

function whilePaying(pays) {
  if (pays <= 0) return "never";
  return `c < ${fixed(pays)}`;
}

function tableOf(choices) {
  const head = ["domain", "fastest setting", "speed-up", "tokens per pass", "pays while"];
  const looks = looksOf(choices.map(({ domain }) => domain));
  return el("table", { class: "best" },
    el("thead", null, el("tr", null, head.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", null, choices.map(({ domain, settings, best, pays }) => {
      const chosen = settings[best];
      return el("tr", null,
        el("th", { scope: "row" }, el("span", { class: `dot ${looks.get(domain).look}` }), domain),
        el("td", null, best ? "★ " : "", nameOf(chosen.shape)),
        el("td", { class: "number" }, fixed(chosen.speedup)),
        el("td", { class: "number" }, fixed(chosen.tokens)),
        el("td", { class: "number" }, whilePaying(pays)));
    })));
}

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
        class: `part-name ${kind}` }, "target pass"));
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

/** One whole block of the chosen setting beside plain decoding of as many tokens. */
function drawTimeline(view) {
  const { run, state } = view;
  const domain = run.domain[state.text];
  const tree = treeOf(state.shape);
  const sums = domainSums(run, domain, state.shape);
  const tokens = tokensPerPass(sums);
  const block = partsOfBlock(tree, state.machine);
  const time = blockPrices(tree, state.machine).at(-1);
  const width = byId("timeline").clientWidth;
  const scale = width / Math.max(time, tokens);
  const height = LANE.top + LANE.apart + LANE.height + 4;
  const gain = speedup(sums, tree, state.machine);
  const words = `${domain}, ${nameOf(state.shape)}: a block takes ${fixed(time)} target passes and `
    + `gives ${fixed(tokens)} tokens; plain decoding takes ${fixed(tokens)} passes for them. `
    + `Expected speed-up: ${fixed(gain)}.`;
  put("timeline-words", words);
  put("timeline", svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": words },
    lane(block, 0, scale, "one block"),
    lane(plainParts(tokens), 1, scale, "plain decoding of as many tokens")));
}

export function drawMachine(view, act) {
  const choices = domainsOf(view.run).map((domain) => choiceOf(view, domain));
  put("machine-words", inWords(choices));
  put("machine-picture", chartOf(choices, view, act));
  put("machine-table", tableOf(choices));
  drawTimeline(view);
}
