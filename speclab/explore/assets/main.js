// The page: what is chosen (state), what follows from it (view), and when each part is drawn.

import { addressOf, stateAt } from "./address.js";
import { BENCH, drawBench, writeBench } from "./bench_view.js";
import { drawChoices, drawSettings, listen } from "./controls.js";
import { canUnpack, columnOf, unpack } from "./data.js";
import { drawDetails } from "./details_view.js";
import { byId, put } from "./dom.js";
import { chainOf, drawGamma } from "./gamma_view.js";
import { drawMachine, MACHINES } from "./machine_view.js";
import { cutOf, domainsOf, findIn, middleText, textsOf } from "./model.js";
import {
  drawBeside, drawLegend, drawStep, drawSummary, drawText, markChosen,
} from "./text_view.js";
import { drawTree } from "./tree_view.js";

const PLAYING_MS = 900; // a block

const config = JSON.parse(byId("config").textContent);
const shows = (part) => config.parts.includes(part);
const view = {
  state: {
    run: 0,
    text: 0,
    shape: chainOf(4),
    position: null,
    step: null,
    seed: 1,
    beside: 1,
    machine: { ...MACHINES.accelerator },
    bench: structuredClone(BENCH),
  },
  get run() {
    return this.trace.runs[this.state.run];
  },
  column(name) {
    return columnOf(this.run, this.state.text, name);
  },
};

function cut() {
  const { state } = view;
  view.cut = cutOf(view.run, state.text, state.shape, state.seed);
  if (state.position !== null && state.position < view.cut.tokens.length) return;
  const rejected = view.cut.tokens.find((token) => token.kind === "recovered");
  state.position = rejected ? rejected.position : 0;
}

// ---- drawing -----------------------------------------------------------------------------------

function drawToken(position) {
  if (shows("text")) drawDetails(view, position);
  if (shows("tree")) drawTree(view, view.cut.tokens[position].block);
}

function remember() {
  if (shows("whole")) history.replaceState(null, "", addressOf(view));
}

function drawTextPart() {
  if (!shows("text")) return;
  drawText(view, act);
  drawBeside(view);
  drawLegend(view);
  drawSummary(view);
  drawStep(view);
}

function drawWords() {
  const wide = shows("bench") && byId("bench-picture").clientWidth > 0;
  if (wide) drawBench(view.state.bench, gammaOf(view.state.shape));
}

function drawCharts() {
  if (!document.body.clientWidth) return; // not laid out yet: drawn when it is
  if (shows("gamma")) drawGamma(view, act);
  if (shows("machine")) drawMachine(view, act);
}

function drawAll() {
  drawChoices(view, act);
  drawSettings(view);
  drawTextPart();
  drawToken(view.state.position);
  drawCharts();
  drawWords();
  remember();
}

function gammaOf(shape) {
  return shape.kind === "chain" ? shape.gamma : shape.depth;
}

// ---- what the reader does ----------------------------------------------------------------------

let playing = null;

function stop() {
  clearInterval(playing);
  playing = null;
  byId("play").textContent = "Play";
}

const act = {
  change(update) {
    stop();
    Object.assign(view.state, { step: null }, update);
    cut();
    drawAll();
  },
  toRun(number) {
    const prompt = view.run.prompt[view.state.text];
    view.state.run = number;
    const same = view.run.prompt.indexOf(prompt);
    const text = same >= 0 ? same : 0;
    act.change({ text, position: null });
  },
  nextText(by) {
    const { run, state } = view;
    const texts = textsOf(run, run.domain[state.text]);
    const at = texts.indexOf(state.text) + by + texts.length;
    act.change({ text: texts[at % texts.length], position: null });
  },
  select(position, focus = false) {
    const last = view.cut.tokens.length - 1;
    view.state.position = Math.min(last, Math.max(0, position));
    markChosen(view.state.position, focus);
    drawToken(view.state.position);
    remember();
  },
  nextRejection() {
    const { cut: { tokens }, state } = view;
    const rejected = tokens.filter((token) => token.kind === "recovered");
    const next = rejected.find((token) => token.position > state.position) ?? rejected[0];
    if (next) act.select(next.position, true);
  },
  find(words) {
    const { run, state } = view;
    const place = words && findIn(run, view.trace.strings, words, state.text, state.position);
    put("found", place || !words ? "" : "in no text");
    if (place) act.change(place);
  },
  beside(gamma) {
    view.state.beside = gamma;
    drawBeside(view);
  },
  preview(position) {
    drawToken(position ?? view.state.position);
  },
  toBlock(by) {
    const { blocks, tokens } = view.cut;
    const number = tokens[view.state.position].block + by;
    if (blocks[number]) act.select(blocks[number].start, true);
  },
  step(number) {
    if (number === null) stop();
    view.state.step = number;
    if (number !== null) {
      const block = view.cut.blocks[number];
      view.state.position = block.start + block.emitted - 1;
    }
    drawTextPart();
    drawToken(view.state.position);
  },
  stepBy(by) {
    const { step } = view.state;
    const last = view.cut.blocks.length - 1;
    const next = step === null ? (by > 0 ? 0 : last) : step + by;
    act.step(Math.min(last, Math.max(0, next)));
  },
  play() {
    if (playing !== null) {
      stop();
      return;
    }
    byId("play").textContent = "Pause";
    if (view.state.step === view.cut.blocks.length - 1) view.state.step = null;
    act.stepBy(1);
    playing = setInterval(() => {
      if (view.state.step === view.cut.blocks.length - 1) act.step(null);
      else act.stepBy(1);
    }, PLAYING_MS);
  },
  machine(machine) {
    view.state.machine = machine;
    drawSettings(view);
    if (shows("machine")) drawMachine(view, act);
  },
  weigh(name, place, value) {
    const weights = [...view.state.bench[name]];
    weights[place] = value;
    act.bench({ [name]: weights });
  },
  bench(update) {
    view.state.bench = update ? { ...view.state.bench, ...update } : structuredClone(BENCH);
    drawWords();
  },
};

// ---- the start ---------------------------------------------------------------------------------

/** In a notebook the frame is as high as its content, where the page around it allows. */
function fitFrame() {
  try {
    const frame = window.frameElement;
    if (frame) frame.style.height = `${document.body.offsetHeight + 4}px`;
  } catch {
    // another origin: the frame keeps the height that it was given, and scrolls
  }
}

function watchWidth() {
  let width = document.body.clientWidth;
  new ResizeObserver(() => {
    fitFrame();
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    if (view.trace) drawCharts();
    drawWords();
  }).observe(document.body);
}

async function start() {
  for (const part of document.querySelectorAll("[data-part]")) {
    part.hidden = !part.dataset.part.split(" ").some(shows);
  }
  document.body.classList.toggle("framed", !shows("whole"));
  if (shows("bench")) writeBench(act, view.state.bench);
  const packed = byId("trace").textContent.trim();
  if (!packed) {
    drawWords();
    byId("same").addEventListener("click", () => act.bench({ q: [...view.state.bench.p] }));
    byId("reset").addEventListener("click", () => act.bench(null));
  } else if (!canUnpack()) {
    put("message", "This browser cannot unpack the recorded run (it lacks DecompressionStream): "
      + "use Chrome or Edge 80, Firefox 113, Safari 16.4, or a later one.");
    byId("message").hidden = false;
    byId("all").hidden = true;
  } else {
    view.trace = await unpack(packed);
    view.state.text = middleText(view.run, domainsOf(view.run)[0], view.state.shape);
    Object.assign(view.state, shows("whole") ? stateAt(location.hash, view.trace) : {});
    cut();
    listen(view, act, config.measured);
    drawAll();
    addEventListener("hashchange", () => act.change(stateAt(location.hash, view.trace)));
  }
  watchWidth();
  document.body.dataset.ready = "yes";
}

globalThis.explore = { view, act, modules }; // for the console, and for the tests
start();
