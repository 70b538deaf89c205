// The page: what is chosen (state), what follows from it (view), and when each part is drawn.

import { addressOf, stateAt } from "./address.js";
import { BENCH, drawBench, writeBench } from "./bench_view.js";
import { drawClock, stopClock } from "./clock_view.js";
import {
  drawChoices, drawSettings, listen, listenToBench, NO_LOOKUP, writeChoices,
} from "./controls.js";
import { canUnpack, columnOf, unpack } from "./data.js";
import { drawDetails } from "./details_view.js";
import { byId, isStill, put } from "./dom.js";
import { drawDraws, drawMore, noDraws } from "./draws_view.js";
import { chainOf, drawGamma } from "./gamma_view.js";
import { firstMachine, machinesOf } from "./machine.js";
import { drawMachine } from "./machine_view.js";
import {
  cutOf, domainsOf, draftsOf, hasCopies, heldTexts, middleText, placesOf, textsOf,
} from "./model.js";
import {
  drawBeside, drawLegend, drawStep, drawSummary, drawText, markChosen,
} from "./text_view.js";
import { drawTour, FIRST_TREE, stepsOf } from "./tour.js";
import { drawTree } from "./tree_view.js";

const PLAYING_MS = 900; // per block
const SAID_MS = 4000; // for how long a remark is shown
const LOOKUP = { kind: "lookup", least: 3, gamma: 0 };
const NARROW = "(max-width: 60rem)"; // where the explanation of a token is a sheet

const config = JSON.parse(byId("config").textContent);
const shows = (part) => config.parts.includes(part);
const machines = machinesOf(config.measured);
const view = {
  machines,
  steps: [],
  tour: { number: -1, isShown: false, guesses: [] },
  state: {
    run: 0,
    text: 0,
    shape: chainOf(4),
    position: null,
    step: null,
    seed: 1,
    beside: 1,
    besideDraft: null,
    lastOf: { chain: chainOf(4), tree: FIRST_TREE, lookup: LOOKUP },
    machine: firstMachine(machines),
    clock: 0,
    bench: structuredClone(BENCH),
    draws: noDraws(),
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
  state.lastOf[state.shape.kind] = state.shape;
  if (state.step !== null) state.step = Math.min(state.step, view.cut.blocks.length - 1);
  if (state.position !== null && state.position < view.cut.tokens.length) return;
  const rejected = view.cut.tokens.find((token) => token.kind === "recovered");
  state.position = rejected ? rejected.position : 0;
}

// ---- drawing -----------------------------------------------------------------------------------

function drawToken(position) {
  if (shows("text")) drawDetails(view, position, act);
  if (shows("tree")) drawTree(view, view.cut.tokens[position].block);
}

function remember() {
  if (shows("whole")) history.replaceState(null, "", addressOf(view));
}

function drawClockPart() {
  stopClock();
  if (shows("whole")) drawClock(view);
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
  if (!wide) return;
  drawBench(view.state.bench, gammaOf(view.state.shape));
  drawDraws(view);
}

function drawCharts() {
  if (!document.body.clientWidth) return; // not laid out yet: drawn when it is
  if (shows("gamma")) drawGamma(view, act);
  if (shows("machine")) drawMachine(view, act);
}

function drawAll() {
  drawChoices(view);
  drawSettings(view);
  drawTextPart();
  drawClockPart();
  drawToken(view.state.position);
  drawCharts();
  drawWords();
  remember();
}

function gammaOf(shape) {
  return shape.depth ?? Math.max(1, shape.gamma);
}

// ---- what the reader does ----------------------------------------------------------------------

let playing = null;

function stop() {
  clearInterval(playing);
  playing = null;
  byId("play").textContent = "Play";
}

const act = {
  change(update, note = "") {
    stop();
    if (shows("text")) put("note", note);
    Object.assign(view.state, { step: null }, update);
    if (view.state.draws.source === "token") act.forget({});
    cut();
    drawAll();
  },
  toRun(number) {
    const before = view.run.temperature;
    const prompt = view.run.prompt[view.state.text];
    view.state.run = number;
    const same = view.run.prompt.indexOf(prompt);
    const text = same >= 0 ? same : 0;
    const { shape, lastOf } = view.state;
    const isThere = shape.kind !== "lookup" || hasCopies(view.run);
    const { temperature } = view.run;
    const notes = [];
    if (temperature !== before) {
      notes.push(`At T = ${temperature} the recorded text is another one, so another token is chosen.`);
    }
    if (!isThere) notes.push(`${NO_LOOKUP}, so the draft is a chain now.`);
    act.change({ text, position: null, shape: isThere ? shape : lastOf.chain }, notes.join(" "));
  },
  toDraft(number) {
    const { position } = view.state; // in the same text
    act.toRun(number);
    act.select(position);
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
    const { step } = view.state; // no further than what is written
    const { block } = view.cut.tokens[view.state.position];
    if (step !== null && block > step) act.writeTo(block);
    markChosen(view.state.position, focus);
    drawToken(view.state.position);
    if (view.state.draws.source === "token") act.drawAnew({});
    remember();
  },
  openSheet() {
    if (!shows("whole") || !matchMedia(NARROW).matches) return;
    document.body.classList.add("sheet");
    const token = document.querySelector("#words [aria-pressed=true]");
    const sheet = byId("details").getBoundingClientRect();
    const isHidden = token.getBoundingClientRect().bottom > sheet.top;
    if (isHidden) token.scrollIntoView({ block: "start", behavior: isStill() ? "auto" : "smooth" });
  },
  closeSheet() {
    document.body.classList.remove("sheet");
  },
  nextRejection() {
    const { cut: { tokens }, state } = view;
    const rejected = tokens.filter((token) => token.kind === "recovered");
    const next = rejected.find((token) => token.position > state.position) ?? rejected[0];
    if (!next) return;
    stop();
    if (state.step !== null) act.writeTo(next.block);
    act.select(next.position, true);
  },
  writeTo(block) {
    view.state.step = block;
    drawTextPart();
  },
  find(words) {
    if (!words) {
      put("found");
      return;
    }
    const { run, state } = view;
    const places = placesOf(run, view.trace.strings, words);
    const next = places.findIndex(({ text, position }) =>
      text > state.text || (text === state.text && position > state.position));
    const number = Math.max(0, next);
    const count = places.length ? `${number + 1} of ${places.length}` : "not found";
    const held = heldTexts(view.trace);
    put("found", held ? `${count}, in ${held}` : count);
    if (places.length) act.change(places[number]);
  },
  beside(update) {
    Object.assign(view.state, update);
    drawBeside(view);
    remember();
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
    remember();
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
    drawClockPart();
    remember();
  },
  weigh(name, place, value) {
    const weights = [...view.state.bench[name]];
    weights[place] = value;
    act.bench({ [name]: weights });
  },
  bench(update) {
    view.state.bench = update ? { ...view.state.bench, ...update } : structuredClone(BENCH);
    act.drawAnew({});
  },
  drawWords(count) {
    drawMore(view, count);
    drawWords();
  },
  forget({ source, seed }) {
    const { draws } = view.state;
    view.state.draws = noDraws(source ?? draws.source, seed ?? draws.seed);
  },
  drawAnew(update) {
    act.forget(update);
    drawWords();
  },
  async copyLink() {
    remember();
    try {
      await navigator.clipboard.writeText(location.href);
      put("copied", "Link copied.");
    } catch {
      put("copied", "This browser does not let the page copy. Copy the address above.");
    }
    setTimeout(() => put("copied"), SAID_MS);
  },
  /** A step of the tour; its panel moves to the section that it speaks of. */
  tour(number) {
    const { steps, tour } = view;
    const step = steps[number];
    tour.number = number <= steps.length ? number : -1;
    tour.isShown = false;
    const panel = byId("tour");
    const section = step ? step.section : "read-section";
    if (tour.number < 0) document.querySelector("header").after(panel);
    else byId(section).before(panel);
    if (step) act.toSaved(step.section, step.before);
    drawTour(view, act);
    panel.focus({ preventScroll: true });
    act.toPanel();
  },
  toPanel() {
    const panel = byId("tour");
    const bar = document.querySelector(".controls");
    const covered = getComputedStyle(bar).position === "sticky" ? bar.offsetHeight : 0;
    panel.style.scrollMarginTop = `${covered + 12}px`;
    panel.scrollIntoView({ block: "start", behavior: isStill() ? "auto" : "smooth" });
  },
  toSaved(section, state) {
    byId("beside-part").open = section === "beside-section";
    act.change(state);
  },
  guess(place) {
    const { guesses, number } = view.tour;
    guesses[number] ??= place;
    act.showAnswer();
  },
  showAnswer() {
    const step = view.steps[view.tour.number];
    view.tour.isShown = true;
    act.toSaved(step.section, step.after);
    drawTour(view, act);
    byId("tour-next").focus({ preventScroll: true });
    act.toPanel();
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
  if (shows("bench")) {
    writeBench(act, view.state.bench);
    listenToBench(view, act);
  }
  const packed = byId("trace").textContent.trim();
  if (!packed) {
    drawWords();
  } else if (!canUnpack()) {
    put("message", "This browser cannot unpack the recorded run: it lacks DecompressionStream. "
      + "Use Chrome or Edge 80, Firefox 113, Safari 16.4, or a later one.");
    byId("message").hidden = false;
    byId("all").hidden = true;
  } else {
    view.trace = await unpack(packed);
    [view.state.besideDraft] = draftsOf(view.trace);
    view.state.text = middleText(view.run, domainsOf(view.run)[0], view.state.shape);
    const saved = () => (shows("whole") ? stateAt(location.hash, view.trace, machines) : {});
    Object.assign(view.state, saved());
    cut();
    writeChoices(view, act);
    listen(view, act);
    if (shows("whole")) {
      view.steps = stepsOf(view);
      drawTour(view, act);
    }
    drawAll();
    addEventListener("hashchange", () => {
      const state = saved();
      if ("text" in state) act.change(state);
    });
  }
  watchWidth();
  document.body.dataset.ready = "yes";
}

globalThis.explore = { view, act, modules }; // for the console, and for the tests
start();
