// The kit's replay (speclab/tree.py, speclab/replay.py), number for number: which blocks a
// speculative decoder would have made of a recorded text. Pure functions; the tests hold every
// count against the kit's.

/** A tree: parent, rank among siblings and depth of each node; node 0 is the root. */
export function staticTree(depth, branches, budget = Infinity) {
  let full = 0;
  for (let level = 1, nodes = branches; level <= depth && full < budget; level++) {
    full += nodes;
    nodes *= branches;
  }
  const size = Math.min(full, budget);
  const tree = { parent: [-1], rank: [0], depth: [0] };
  for (let place = 0; place < size; place++) {
    const parent = Math.floor(place / branches);
    tree.parent.push(parent);
    tree.rank.push(place % branches);
    tree.depth.push(tree.depth[parent] + 1);
  }
  return tree;
}

export function chain(gamma) {
  return staticTree(gamma, 1);
}

export function sizeOf(tree) {
  return tree.parent.length - 1;
}

/** Levels of a tree. Of copies, { gamma, most }: a number for each kind of block, 0 to gamma for a
 * chain of as many tokens, and gamma + n for a copy of n tokens, at most `most`. */
export function depthOf(tree) {
  return tree.most ? tree.gamma + tree.most : tree.depth[sizeOf(tree)];
}

/** children[node][rank]: the child, or undefined. */
export function childrenOf(tree) {
  const children = tree.parent.map(() => []);
  for (let node = 1; node < tree.parent.length; node++) {
    children[tree.parent[node]][tree.rank[node]] = node;
  }
  return children;
}

/** Nodes of depth 1 .. d, for d = 1 .. depth, at index d - 1. */
export function nodesToDepth(tree) {
  const counts = new Array(depthOf(tree)).fill(0);
  for (let node = 1; node < tree.parent.length; node++) counts[tree.depth[node] - 1] += 1;
  for (let d = 1; d < counts.length; d++) counts[d] += counts[d - 1];
  return counts;
}

/** Nodes that have children, by their depth from 0: tokens that the draft reads in one pass. */
export function parentsByDepth(tree) {
  const parents = Array.from({ length: depthOf(tree) }, () => new Set());
  for (let node = 1; node < tree.parent.length; node++) {
    parents[tree.depth[node] - 1].add(tree.parent[node]);
  }
  return parents.map((found) => found.size);
}

/** survival[start * depth + d - 1] in {0, 1}: are at least d tokens accepted of a block that starts
 * there? The walk by ranks: exact for greedy text, and under the point-mass rule. rankOf(start,
 * place): the rank of the text's token at this place of a block that begins there. */
export function walk(rankOf, length, tree) {
  const depth = depthOf(tree);
  const children = childrenOf(tree);
  const survival = new Float64Array(length * depth);
  for (let start = 0; start < length; start++) {
    let node = 0;
    for (let d = 0; d < depth && start + d < length; d++) {
      node = children[node][rankOf(start, d)];
      if (node === undefined) break;
      survival[start * depth + d] = 1;
    }
  }
  return survival;
}

/** survival of a chain under the rejection rule: running products of ratioOf(start, place), the
 * chance that the text's token was drafted and kept. */
export function expected(ratioOf, length, gamma) {
  const survival = new Float64Array(length * gamma);
  for (let start = 0; start < length; start++) {
    let product = 1;
    for (let d = 0; d < gamma && start + d < length; d++) {
      product *= ratioOf(start, d);
      survival[start * gamma + d] = product;
    }
  }
  return survival;
}

/** P(a block starts at t). */
function visits(survival, length, depth) {
  const found = new Float64Array(length + depth + 1);
  found[0] = 1;
  for (let t = 0; t < length; t++) {
    if (!found[t]) continue;
    let before = 1;
    for (let accepted = 0; accepted <= depth; accepted++) {
      const after = accepted < depth ? survival[t * depth + accepted] : 0;
      found[t + accepted + 1] += found[t] * (before - after);
      before = after;
    }
  }
  return found;
}

/** The blocks of a text of `length` tokens, as the rows of `speclab.replay.replay`: start,
 * remaining, weight (the probability that there is such a block), and of it levels and nodes
 * drafted, accepted, emitted, truncated. */
export function blocksOf(survival, length, tree) {
  const depth = depthOf(tree);
  const nodes = nodesToDepth(tree);
  const weights = visits(survival, length, depth);
  const blocks = [];
  for (let start = 0; start < length; start++) {
    const weight = weights[start];
    if (weight <= 0) continue;
    const remaining = length - start;
    const levels = Math.min(remaining, depth);
    let accepted = 0;
    for (let d = 0; d < depth; d++) accepted += survival[start * depth + d];
    const truncated = remaining <= depth ? survival[start * depth + levels - 1] : 0;
    const drafted = nodes[levels - 1];
    const emitted = accepted + 1 - truncated;
    blocks.push({ start, remaining, weight, levels, drafted, accepted, emitted, truncated });
  }
  return blocks;
}

/** The blocks of a greedy text where a block copies if at least `least` tokens match, else drafts a
 * chain of gamma (`speclab.lab.combined.planned`). matched, copied: at each position, how many
 * of the last tokens stood before, and how many copied tokens are the text's; rankOf: as in `walk`.
 * Of a block also isCopied and rejected; its levels are numbers of `depthOf`. */
export function blocksOfCopies({ matched, copied, rankOf }, { gamma, most, least }) {
  const length = matched.length;
  const blocks = [];
  for (let start = 0; start < length; ) {
    const remaining = length - start;
    const isCopied = matched[start] >= least;
    const drafted = Math.min(remaining, isCopied ? most : gamma);
    let accepted = 0;
    if (isCopied) accepted = Math.min(copied[start], drafted);
    else while (accepted < drafted && rankOf(start, accepted) === 0) accepted += 1;
    const truncated = Number(accepted === remaining);
    const emitted = accepted + 1 - truncated;
    const levels = isCopied ? gamma + drafted : drafted;
    const rejected = Number(accepted < drafted);
    blocks.push({ start, remaining, weight: 1, levels, drafted, accepted, emitted, truncated,
      isCopied, rejected });
    start += emitted;
  }
  return blocks;
}

export const SUMS = ["blocks", "drafted", "accepted", "emitted", "truncated"];

/** Weighted sums over blocks, as `speclab.replay.prompt_sums`, and the blocks by the levels that
 * were drafted (byLevels[l]). */
export function sumsOf(blocks, depth) {
  const sums = { blocks: 0, drafted: 0, accepted: 0, emitted: 0, truncated: 0 };
  sums.byLevels = new Float64Array(depth + 1);
  for (const block of blocks) {
    sums.blocks += block.weight;
    sums.byLevels[block.levels] += block.weight;
    for (const name of SUMS.slice(1)) sums[name] += block.weight * block[name];
  }
  return sums;
}

/** How many tokens were drafted, and rejected, after the accepted ones of one block. */
export function rejectedIn(block, rankOf, tree) {
  if (block.accepted === block.levels) return 0;
  const children = childrenOf(tree);
  let node = 0;
  for (let d = 0; d < block.accepted; d++) node = children[node][rankOf(block.start, d)];
  return children[node].length;
}
