// The recorded texts under a chosen shape: sums of a text, of a domain, and one text cut into
// blocks. A shape is { kind: "chain", gamma }, { kind: "tree", depth, branches, budget } or
// { kind: "lookup", least, gamma }: a copy where at least `least` tokens match, else a chain of gamma.
// Pure functions with a memory; knows no page.

import { interval, random } from "./chance.js";
import { costOf } from "./cost.js";
import { columnOf, draftedOf } from "./data.js";
import { blocksOf, blocksOfCopies, chain, depthOf, expected, rejectedIn } from "./replay.js";
import { staticTree, sumsOf, walk } from "./replay.js";

export const LARGEST_GAMMA = 16;
const MOST_COPIED = 16; // tokens of a copy (speclab/copying.py)

export function nameOf(shape) {
  if (shape.kind === "chain") return shape.gamma ? `chain:${shape.gamma}` : "plain";
  if (shape.kind === "lookup") {
    return `${shape.gamma ? `chain:${shape.gamma}+` : ""}lookup:${shape.least}`;
  }
  return `tree:${shape.depth},${shape.branches},${shape.budget}`;
}

/** Does a shape need a draft model? */
export function isDrafted(shape) {
  return shape.kind === "tree" || shape.gamma > 0;
}

/** A shape as a reader calls it; with the name of the draft where a page has two. */
export function shapeWords(shape, draft = "") {
  if (draft && isDrafted(shape)) return `${shapeWords(shape)} (${draft})`;
  if (shape.kind === "tree") return `tree ${shape.depth}, ${shape.branches}, ${shape.budget}`;
  if (shape.kind === "lookup") return shape.gamma ? `gamma ${shape.gamma} + lookup` : "lookup";
  return shape.gamma ? `gamma ${shape.gamma}` : "plain decoding";
}

/** The tree of a shape; of a lookup what `depthOf` takes in its place. */
export function treeOf(shape) {
  if (shape.kind === "lookup") return { ...shape, most: MOST_COPIED };
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

/** min(1, q/p): the chance that the text's token was drafted and kept, as `draftedOf`. */
function ratiosOf(run, text) {
  const p = columnOf(run, text, "p_token");
  const q = draftedOf(run, text, "q_token");
  return (start, place) => Math.min(1, (q(start, place) ?? 0) / p[start + place]);
}

/** Were copies recorded? They are for greedy text whose prompts are known. */
export function hasCopies(run) {
  return Boolean(run.columns.matched);
}

function copyBlocks(run, text, shape) {
  const column = (name) => columnOf(run, text, name);
  const columns = { matched: column("matched"), copied: column("copied"),
    rankOf: draftedOf(run, text, "draft_rank") };
  return blocksOfCopies(columns, treeOf(shape));
}

/** Sums of one text's blocks: counts, or expectations under the rejection rule. */
export function textSums(run, text, shape) {
  return remembered(run, `${nameOf(shape)} ${text}`, () => {
    const tree = treeOf(shape);
    if (tree.most) return sumsOf(copyBlocks(run, text, shape), depthOf(tree));
    const survival =
      ruleOf(run, shape) === "rejection"
        ? expected(ratiosOf(run, text), run.length[text], shape.gamma)
        : walk(draftedOf(run, text, "draft_rank"), run.length[text], tree);
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

/** The 95 % interval of a domain's tokens per target pass, or of its speed-up where the prices of a
 * block are given; null for too few texts. */
export function domainInterval(run, domain, shape, prices = null) {
  const compute = () => {
    const sums = textsOf(run, domain).map((text) => textSums(run, text, shape));
    const emitted = sums.map((one) => one.emitted);
    const paid = sums.map((one) => (prices ? costOf(one, prices) : one.blocks));
    return interval(emitted, paid, run.levels[domain]);
  };
  if (prices) return compute();
  return remembered(run, `interval of ${domain} ${nameOf(shape)}`, compute);
}

/** The names of the drafts of a page, the first one first. */
export function draftsOf(trace) {
  return [...new Set(trace.runs.map((run) => run.draft))];
}

/** The chosen shape as a reader calls it, with its draft where the page has two. */
export function chosenWords({ trace, run, state }) {
  return shapeWords(state.shape, draftsOf(trace).length > 1 ? run.draft : "");
}

/** The number of the run of a draft at a temperature; -1 where it is not on this page. */
export function runOf(trace, draft, temperature) {
  return trace.runs.findIndex((run) => run.draft === draft && run.temperature === temperature);
}

/** Which texts a page holds, where it does not hold all. */
export function heldTexts({ shown, recorded }) {
  return shown < recorded ? `the first ${shown} of ${recorded} texts per domain` : "";
}

/** The same as a sentence about numbers. */
export function ofTexts(trace) {
  const held = heldTexts(trace);
  return held && ` The numbers are from ${held}.`;
}

export function domainsOf(run) {
  return [...new Set(run.domain)];
}

export function textsOf(run, domain) {
  const all = run.domain.map((_, text) => text);
  return domain === null ? all : all.filter((text) => run.domain[text] === domain);
}

/** Every place where these words begin, of all texts in their order: { text, position }. */
export function placesOf(run, strings, words) {
  const wanted = words.toLowerCase();
  return remembered(run, `places of ${wanted}`, () =>
    run.length.flatMap((_, text) => {
      const tokens = Array.from(columnOf(run, text, "token"), (token) => strings[token]);
      const whole = tokens.join("").toLowerCase();
      let end = 0;
      const ends = tokens.map((token) => (end += token.length));
      const found = [];
      for (let at = whole.indexOf(wanted); at >= 0; at = whole.indexOf(wanted, at + 1)) {
        found.push({ text, position: ends.findIndex((last) => last > at) });
      }
      return found;
    }));
}

/** Among the longest texts, the one whose tokens per target pass are the median. */
export function middleText(run, domain, shape) {
  const texts = textsOf(run, domain);
  const most = Math.max(...texts.map((text) => run.length[text]));
  const longest = texts.filter((text) => run.length[text] === most);
  const speed = (text) => tokensPerPass(textSums(run, text, shape));
  longest.sort((a, b) => speed(a) - speed(b));
  return longest[Math.floor((longest.length - 1) / 2)];
}

/** One text as a decoder cuts it: the blocks of `blocksOf` with rejected (tokens that were tried in
 * vain) and ending ("recovered" after a rejection, "bonus" where nothing more was drafted, "" where
 * the text ends), and the token at each position with its kind, block and place in it. Under the
 * rejection rule one draw: position i is accepted where coin i of the seed is below min(1, q/p). */
export function cutOf(run, text, shape, seed) {
  const tree = treeOf(shape);
  const length = run.length[text];
  let rankOf = draftedOf(run, text, "draft_rank");
  if (ruleOf(run, shape) === "rejection") {
    const coins = Array.from({ length }, random(seed * 1000003 + text));
    const ratioOf = ratiosOf(run, text);
    rankOf = (start, place) => (coins[start + place] < ratioOf(start, place) ? 0 : 1);
  }
  const blocks = tree.most ? copyBlocks(run, text, shape)
    : blocksOf(walk(rankOf, length, tree), length, tree);
  const tokens = [];
  blocks.forEach((block, number) => {
    block.rejected ??= rejectedIn(block, rankOf, tree);
    block.ending = block.rejected ? "recovered" : "bonus";
    if (block.truncated) block.ending = "";
    for (let place = 0; place < block.emitted; place++) {
      const kind = place < block.accepted ? "accepted" : block.ending;
      tokens.push({ kind, block: number, place, position: block.start + place });
    }
  });
  return { blocks, tokens };
}
