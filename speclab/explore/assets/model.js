// The recorded texts under a chosen shape: sums of a text, of a domain, and one text cut into
// blocks. A shape is { kind: "chain", gamma } or { kind: "tree", depth, branches, budget }.
// Pure functions with a memory; knows no page.

import { columnOf } from "./data.js";
import { blocksOf, chain, depthOf, expected, ratios, rejectedIn } from "./replay.js";
import { staticTree, sumsOf, walk } from "./replay.js";

export const LARGEST_GAMMA = 16;

export function nameOf(shape) {
  if (shape.kind === "chain") return shape.gamma ? `chain:${shape.gamma}` : "plain";
  return `tree:${shape.depth},${shape.branches},${shape.budget}`;
}

export function treeOf(shape) {
  if (shape.kind === "chain") return chain(shape.gamma);
  return staticTree(shape.depth, shape.branches, shape.budget);
}

/** The rule that the kit replays a shape by. */
export function ruleOf(run, shape) {
  if (run.temperature === 0) return "greedy";
  return shape.kind === "chain" ? "rejection" : "point-mass";
}

function remembered(run, key, compute) {
  run.memory ??= new Map();
  if (!run.memory.has(key)) run.memory.set(key, compute());
  return run.memory.get(key);
}

function ratiosOf(run, text) {
  return ratios(columnOf(run, text, "p_token"), columnOf(run, text, "q_token"));
}

/** Sums of one text's blocks: counts, or expectations under the rejection rule. */
export function textSums(run, text, shape) {
  return remembered(run, `${nameOf(shape)} ${text}`, () => {
    const tree = treeOf(shape);
    const survival =
      ruleOf(run, shape) === "rejection"
        ? expected(ratiosOf(run, text), shape.gamma)
        : walk(columnOf(run, text, "draft_rank"), tree);
    return sumsOf(blocksOf(survival, run.length[text], tree), depthOf(tree));
  });
}

/** The same, summed over the texts of a domain (null: over all). */
export function domainSums(run, domain, shape) {
  return remembered(run, `${nameOf(shape)} of ${domain}`, () => {
    const total = { blocks: 0, drafted: 0, accepted: 0, emitted: 0, truncated: 0 };
    total.byLevels = new Float64Array(depthOf(treeOf(shape)) + 1);
    textsOf(run, domain).forEach((text) => {
      const sums = textSums(run, text, shape);
      for (const name of ["blocks", "drafted", "accepted", "emitted", "truncated"]) {
        total[name] += sums[name];
      }
      sums.byLevels.forEach((blocks, levels) => (total.byLevels[levels] += blocks));
    });
    return total;
  });
}

export function tokensPerPass(sums) {
  return sums.emitted / sums.blocks;
}

export function domainsOf(run) {
  return [...new Set(run.domain)];
}

export function textsOf(run, domain) {
  const all = run.domain.map((_, text) => text);
  return domain === null ? all : all.filter((text) => run.domain[text] === domain);
}

/** The next place after a token of a text where these words stand in this or another text; null
 * where they stand in none. */
export function findIn(run, strings, words, text, position) {
  const wanted = words.toLowerCase();
  const count = run.length.length;
  for (let step = 0; step <= count; step++) {
    const at = (text + step) % count;
    const tokens = Array.from(columnOf(run, at, "token"), (token) => strings[token]);
    const from = step === 0 ? tokens.slice(0, position + 1).join("").length : 0;
    const found = tokens.join("").toLowerCase().indexOf(wanted, from);
    if (found < 0) continue;
    let end = 0;
    return { text: at, position: tokens.findIndex((token) => (end += token.length) > found) };
  }
  return null;
}

/** Among the longest texts, the one whose tokens per pass are in the middle. */
export function middleText(run, domain, shape) {
  const texts = textsOf(run, domain);
  const most = Math.max(...texts.map((text) => run.length[text]));
  const longest = texts.filter((text) => run.length[text] === most);
  const speed = (text) => tokensPerPass(textSums(run, text, shape));
  longest.sort((a, b) => speed(a) - speed(b));
  return longest[Math.floor((longest.length - 1) / 2)];
}

/** Numbers in [0, 1) from a seed (mulberry32, public domain). */
export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** One text as a decoder cuts it: the blocks of `blocksOf` with rejected (tokens that were tried in
 * vain) and ending ("recovered" after a rejection, "bonus" where nothing more was drafted, "" where
 * the text ends), and the token at each position with its kind, block and place in it. Under the
 * rejection rule one draw: position i is accepted where coin i of the seed is below min(1, q/p). */
export function cutOf(run, text, shape, seed) {
  const tree = treeOf(shape);
  let ranks = columnOf(run, text, "draft_rank");
  if (ruleOf(run, shape) === "rejection") {
    const coin = random(seed * 1000003 + text);
    ranks = ratiosOf(run, text).map((ratio) => (coin() < ratio ? 0 : 1));
  }
  const blocks = blocksOf(walk(ranks, tree), run.length[text], tree);
  const tokens = [];
  blocks.forEach((block, number) => {
    block.rejected = rejectedIn(block, ranks, tree);
    block.ending = block.rejected ? "recovered" : "bonus";
    if (block.truncated) block.ending = "";
    for (let place = 0; place < block.emitted; place++) {
      const kind = place < block.accepted ? "accepted" : block.ending;
      tokens.push({ kind, block: number, place, position: block.start + place });
    }
  });
  return { blocks, tokens };
}
