// What blocks cost on an assumed machine (speclab/cost.py, speclab/analysis/choose.py). A machine
// is { c, knee, o }: c, a draft pass, and o, the loop's own time a block, in target passes over one
// token; knee, the number of tokens up to which a target pass takes no longer. Pure functions.

import { depthOf, nodesToDepth } from "./replay.js";

/** v(n): a target pass over n tokens. Flat up to the knee, then in proportion. */
export function passCost(n, machine) {
  return Math.max(1, n / machine.knee);
}

/** Cost of a block in which 0, 1, ... levels of a tree are drafted; entry 0 is a plain pass. */
export function blockPrices(tree, machine) {
  const nodes = nodesToDepth(tree);
  const drafting = nodes.map(
    (count, level) => (level + 1) * machine.c + passCost(count + 1, machine) + machine.o,
  );
  return [1, ...drafting];
}

/** Expected speed-up over plain decoding of texts with these sums. */
export function speedup(sums, tree, machine) {
  const prices = blockPrices(tree, machine);
  let cost = 0;
  sums.byLevels.forEach((blocks, levels) => (cost += blocks * prices[levels]));
  return sums.emitted / cost;
}

/** The c at which the speed-up is 1; negative: not even a draft that costs nothing helps. */
export function breakEvenCost(sums, tree, machine) {
  const free = blockPrices(tree, { ...machine, c: 0 });
  let cost = 0;
  let draftPasses = 0;
  sums.byLevels.forEach((blocks, levels) => {
    cost += blocks * free[levels];
    draftPasses += blocks * levels;
  });
  return (sums.emitted - cost) / draftPasses;
}

/** The place of the fastest: the highest speed-up, the first of equals (`choose.fastest`). */
export function fastest(speedups) {
  let best = 0;
  speedups.forEach((value, i) => {
    if (value > speedups[best]) best = i;
  });
  return best;
}

/** The parts of one whole block, in order: what it is and how long it takes. */
export function partsOfBlock(tree, machine) {
  const parts = [];
  for (let level = 1; level <= depthOf(tree); level++) parts.push(["draft", machine.c]);
  parts.push(["target", passCost(tree.parent.length, machine)]);
  if (machine.o > 0) parts.push(["loop", machine.o]);
  return parts;
}
