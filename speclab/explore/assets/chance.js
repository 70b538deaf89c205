// Seeded chance, and 95 % intervals by resampling prompts, as speclab/stats.py makes them. Pure
// functions.

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

export const RESAMPLES = 1000;
const SEED = 1;
const drawn = new Map();

/** How often each of `size` texts is drawn in each resample, one resample after the other. */
function timesDrawn(size) {
  if (!drawn.has(size)) {
    const counts = new Uint16Array(RESAMPLES * size);
    const next = random(SEED);
    for (let resample = 0; resample < RESAMPLES; resample++) {
      for (let draw = 0; draw < size; draw++) {
        counts[resample * size + Math.floor(next() * size)] += 1;
      }
    }
    drawn.set(size, counts);
  }
  return drawn.get(size);
}

function quantile(sorted, level) {
  const place = level * (sorted.length - 1);
  const below = Math.floor(place);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (place - below) * (sorted[above] - sorted[below]);
}

/** [low, high] of sum(above) / sum(below), one entry of each per text. levels: the two quantiles
 * (`stats.levels_of`), null for too few texts, which have no interval. */
export function interval(above, below, levels) {
  if (!levels) return null;
  const size = above.length;
  const counts = timesDrawn(size);
  const ratios = new Float64Array(RESAMPLES);
  for (let resample = 0; resample < RESAMPLES; resample++) {
    let upper = 0;
    let lower = 0;
    for (let text = 0; text < size; text++) {
      const times = counts[resample * size + text];
      upper += times * above[text];
      lower += times * below[text];
    }
    ratios[resample] = upper / lower;
  }
  ratios.sort();
  return levels.map((level) => quantile(ratios, level));
}
