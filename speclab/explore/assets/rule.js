// The rejection rule on two small distributions (speclab/analysis/rejection_rule.py). Pure functions.

export function normalised(weights) {
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => (total > 0 ? weight / total : 1 / weights.length));
}

/** What of q is kept of each word, min(p, q), and the rest that is rejected. */
export function split(p, q) {
  const kept = p.map((value, i) => Math.min(value, q[i]));
  return { kept, rejected: q.map((value, i) => value - kept[i]) };
}

export function overlap(p, q) {
  return split(p, q).kept.reduce((sum, value) => sum + value, 0);
}

/** norm(p - kept), the residual; p itself where nothing is ever rejected. kept: min(p, q) of each
 * word, of which one entry may stand for several words. */
export function residualOf(p, kept) {
  const excess = p.map((value, i) => Math.max(value - kept[i], 0));
  const total = excess.reduce((sum, value) => sum + value, 0);
  return total === 0 ? p : excess.map((value) => value / total);
}

export function residual(p, q) {
  return residualOf(p, split(p, q).kept);
}

/** The distribution of the word that comes out. */
export function emitted(p, q) {
  const { kept, rejected } = split(p, q);
  const often = rejected.reduce((sum, value) => sum + value, 0);
  return residual(p, q).map((value, i) => kept[i] + often * value);
}

/** Tokens per target pass if each drafted token is kept with probability alpha, whatever came
 * before. */
export function blockEfficiency(alpha, gamma) {
  return alpha === 1 ? gamma + 1 : (1 - alpha ** (gamma + 1)) / (1 - alpha);
}

// ---- draws -------------------------------------------------------------------------------------

function picked(probabilities, coin) {
  let below = 0;
  const found = probabilities.findIndex((value) => (below += value) > coin);
  return found < 0 ? probabilities.findLastIndex((value) => value > 0) : found;
}

/** One word as the rule `rejection` makes it: draw from q, keep with min(1, p/q), else draw from
 * the residual. As the rule `ratio` makes it, which is not lossless, the draft's best word takes the
 * place of the draw. kept: min(p, q); best: the draft's best word. */
export function drawnWord({ p, q, kept, best }, isLossless, next) {
  const drafted = isLossless ? picked(q, next()) : best;
  if (next() < kept[drafted] / q[drafted]) return drafted;
  return picked(residualOf(p, kept), next());
}

/** The exact distribution of that word. */
export function limitOf({ p, q, kept, best }, isLossless) {
  if (isLossless) return p;
  const chance = kept[best] / q[best];
  return residualOf(p, kept).map((value, i) => (1 - chance) * value + (i === best ? chance : 0));
}

/** Half the sum of the differences of two distributions. */
export function totalVariation(a, b) {
  return a.reduce((sum, value, i) => sum + Math.abs(value - b[i]), 0) / 2;
}

/** The total variation that n words from p itself are expected to have. */
export function expectedVariation(p, n) {
  const spread = p.reduce((sum, value) => sum + Math.sqrt((2 * value * (1 - value)) / Math.PI), 0);
  return spread / 2 / Math.sqrt(n);
}
