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

/** norm(max(p - q, 0)); p itself where nothing is ever rejected. */
export function residual(p, q) {
  const excess = p.map((value, i) => Math.max(value - q[i], 0));
  const total = excess.reduce((sum, value) => sum + value, 0);
  return total === 0 ? p : excess.map((value) => value / total);
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
