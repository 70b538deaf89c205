// Machines that a reader may choose, and how an address names one. Pure functions.

export const KNEES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128];
export const BATCHES = [1, 2, 4, 8, 16, 32, 64];
export const MEASURED = "measured";

const ASSUMED = { batch: 1, draft: null, verify: null, treeLoop: null };
const OF_KIND = {
  accelerator: { c: 0.1, knee: 64, o: 0.05 },
  processor: { c: 0.1, knee: 3, o: 0.1 },
};

/** The machines by name: two assumed ones, and the one that notebook 10 measured where there is one
 * (`page.machine_of`; null without one). */
export function machinesOf(measured) {
  const machines = {};
  for (const [preset, values] of Object.entries(OF_KIND)) {
    machines[preset] = { ...ASSUMED, ...values, preset };
  }
  if (!measured) return machines;
  const { sizes, draft, verify, overhead, tree_overhead: treeLoop } = measured;
  machines[MEASURED] = {
    ...ASSUMED,
    preset: MEASURED,
    c: draft[0],
    o: overhead,
    knee: OF_KIND.processor.knee,
    draft: { sizes, ratios: draft },
    verify: { sizes, ratios: verify },
    treeLoop,
  };
  return machines;
}

/** The machine that a page starts with: the measured one where there is one. */
export function firstMachine(machines) {
  return machines[MEASURED] ?? machines.accelerator;
}

/** A machine with one value set by hand, which takes the place of what was measured of it. */
export function changed(machine, name, value) {
  if (name === "batch") return { ...machine, batch: value };
  const measured = { c: "draft", knee: "verify", o: "treeLoop" }[name];
  return { ...machine, [name]: value, [measured]: null, preset: null };
}

/** "measured", "accelerator", or the values c, knee and o, of which each may be "measured". */
export function machineName(machine) {
  if (machine.preset) return machine.preset;
  const { c, knee, o, draft, verify, treeLoop } = machine;
  const known = [[c, draft], [knee, verify], [o, treeLoop]];
  return known.map(([value, measured]) => (measured === null ? value : MEASURED)).join();
}

/** The machine of a name and a batch; null where there is no such machine here. */
export function machineNamed(name, batch, machines) {
  if (!BATCHES.includes(batch)) return null;
  if (Object.hasOwn(machines, name)) return { ...machines[name], batch };
  const values = name.split(",");
  const isMeasured = values.includes(MEASURED);
  if (values.length !== 3 || (isMeasured && !machines[MEASURED])) return null;
  let machine = isMeasured ? machines[MEASURED] : machines.accelerator;
  for (const [place, field] of ["c", "knee", "o"].entries()) {
    if (values[place] === MEASURED) continue;
    const value = Number(values[place]);
    const fits = field === "knee" ? KNEES.includes(value) : value >= 0 && value <= 1;
    if (values[place] === "" || !fits) return null;
    machine = changed(machine, field, value);
  }
  return { ...machine, batch };
}
