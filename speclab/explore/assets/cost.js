// What blocks cost on a machine (speclab/cost.py, speclab/lab/choose.py). All times are in
// target passes over one token. A machine is { c, knee, o, batch, draft, verify, treeLoop }:
//   c: a draft pass; o: the loop's own time per block;
//   knee: the number of tokens up to which a target pass takes no longer;
//   batch: how many texts one pass serves;
//   draft, verify: measured times of a draft and a target pass, as { sizes, ratios }, null where c
//   and knee are assumed; treeLoop: the loop's measured time per block of a tree, null where it is o.
// Pure functions.

import { depthOf, nodesToDepth, parentsByDepth } from "./replay.js";

/** Straight lines between measured sizes. Beyond the largest one the slope goes on that leads to it
 * from at most half of it, as in notebook 10; it never falls. */
function interpolated({ sizes, ratios }, n) {
  const last = sizes.length - 1;
  if (n > sizes[last]) {
    const half = sizes.findLastIndex((size) => size <= sizes[last] / 2);
    const rise = Math.max(0, ratios[last] - ratios[half]);
    return ratios[last] + (rise * (n - sizes[last])) / (sizes[last] - sizes[half]);
  }
  const after = sizes.findIndex((size) => size >= n);
  if (sizes[after] === n) return ratios[after];
  const slope = (ratios[after] - ratios[after - 1]) / (sizes[after] - sizes[after - 1]);
  return ratios[after - 1] + slope * (n - sizes[after - 1]);
}

/** A target pass over n tokens, in passes over one token. */
function targetPass(n, machine) {
  if (machine.verify) return interpolated(machine.verify, n);
  return Math.max(1, n / machine.knee);
}

/** v(n): a target pass over n tokens of each text of the batch, in passes over one token each. */
export function passCost(n, machine) {
  return targetPass(n * machine.batch, machine) / targetPass(machine.batch, machine);
}

/** c: a draft pass over `width` tokens of each text of the batch, in the same unit. */
export function draftCost(width, machine) {
  const alone = machine.draft ? interpolated(machine.draft, width * machine.batch) : machine.c;
  return alone / targetPass(machine.batch, machine);
}

function loopCost(isChain, machine) {
  const alone = isChain || machine.treeLoop === null ? machine.o : machine.treeLoop;
  return alone / targetPass(machine.batch, machine);
}

/** The parts of a block of copies: a copy takes no draft pass. */
function partsOfCopies({ gamma }, kind, machine) {
  const isCopied = kind > gamma;
  const drafts = isCopied ? 0 : kind;
  const parts = Array.from({ length: drafts }, () => ["draft", draftCost(1, machine)]);
  parts.push(["target", passCost((isCopied ? kind - gamma : kind) + 1, machine)]);
  const loop = loopCost(true, machine);
  if (loop > 0) parts.push(["loop", loop]);
  return parts;
}

/** The parts of a block in which the first levels of a tree are drafted, in order: what each is and
 * how long it takes. */
export function partsOfBlock(tree, levels, machine) {
  if (tree.most) return partsOfCopies(tree, levels, machine);
  const nodes = levels ? nodesToDepth(tree)[levels - 1] : 0;
  if (!nodes) return [["target", 1]];
  const parts = parentsByDepth(tree).slice(0, levels)
    .map((width) => ["draft", draftCost(width, machine)]);
  parts.push(["target", passCost(nodes + 1, machine)]);
  const loop = loopCost(nodes === levels, machine);
  if (loop > 0) parts.push(["loop", loop]);
  return parts;
}

/** Cost of a block in which 0, 1, ... levels of a tree are drafted; entry 0 is a plain pass. */
export function blockPrices(tree, machine) {
  return Array.from({ length: depthOf(tree) + 1 }, (_, levels) =>
    partsOfBlock(tree, levels, machine).reduce((sum, [, time]) => sum + time, 0));
}

/** Cost of all blocks of texts with these sums. */
export function costOf(sums, prices) {
  let cost = 0;
  sums.byLevels.forEach((blocks, levels) => (cost += blocks * prices[levels]));
  return cost;
}

/** Expected speed-up over plain decoding of texts with these sums. */
export function speedup(sums, tree, machine) {
  return sums.emitted / costOf(sums, blockPrices(tree, machine));
}

/** The c, the same for every draft pass, at which the speed-up is 1; negative: not even a draft
 * that costs nothing helps. */
export function breakEvenCost(sums, tree, machine) {
  const free = blockPrices(tree, { ...machine, c: 0, draft: null });
  let draftPasses = 0;
  sums.byLevels.forEach((blocks, levels) => {
    if (!tree.most || levels <= tree.gamma) draftPasses += blocks * levels;
  });
  const left = (sums.emitted - costOf(sums, free)) / draftPasses;
  return left * targetPass(machine.batch, machine);
}

/** The place of the fastest: the highest speed-up, the first of equals (`choose.fastest`). */
export function fastest(speedups) {
  let best = 0;
  speedups.forEach((value, i) => {
    if (value > speedups[best]) best = i;
  });
  return best;
}
