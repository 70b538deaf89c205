// Plain and speculative decoding of one text on one clock, token by token.

import { partsOfBlock } from "./cost.js";
import { byId, fixed, isStill, plural, put, targetPasses, times } from "./dom.js";
import { shapeWords, treeOf } from "./model.js";
import { coloured, shownToken } from "./text_view.js";

const TICK_MS = 80;
const TICKS = 160; // from the first token to the last of the slower lane

/** Of each block of the chosen draft: its parts, and when it starts and ends, in target passes. */
function scheduleOf(view) {
  const tree = treeOf(view.state.shape);
  let now = 0;
  return view.cut.blocks.map((block) => {
    const parts = partsOfBlock(tree, block.levels, view.state.machine);
    const start = now;
    now += parts.reduce((sum, [, time]) => sum + time, 0);
    return { ...block, parts, start, end: now };
  });
}

/** Plain decoding: one block, and one target pass, per token. */
function plainOf(view) {
  return view.cut.tokens.map((_, position) => ({
    emitted: 1, drafted: 0, parts: [["target", 1]], start: position, end: position + 1,
  }));
}

function lanesOf(view) {
  const drafted = scheduleOf(view);
  const plain = plainOf(view);
  return { drafted, plain };
}

function endOf(lane) {
  return lane[lane.length - 1].end;
}

/** What a lane does at a time, in words. */
function doing(lane, now) {
  const done = lane.filter((block) => block.end <= now + 1e-9);
  const tokens = done.reduce((sum, block) => sum + block.emitted, 0);
  const count = `${plural(tokens, "token")} after ${targetPasses(done.length)}`;
  const block = lane[done.length];
  if (!block) return `${count}. The text is finished.`;
  const drafting = block.parts.filter(([kind]) => kind === "draft")
    .reduce((sum, [, time]) => sum + time, 0);
  if (drafting && now + 1e-9 < block.start + drafting) return `${count}. The draft proposes tokens.`;
  return block.drafted
    ? `${count}. The target checks ${plural(block.drafted, "token")}.`
    : `${count}. The target computes the next token.`;
}

function sentenceOf(view, { drafted, plain }) {
  const [end, plainEnd] = [endOf(drafted), endOf(plain)];
  const name = shapeWords(view.state.shape);
  const slower = end > plainEnd ? ", so drafting slows this text down" : "";
  return `With ${name} this text takes the time of ${fixed(end, 1)} target passes. Plain decoding `
    + `takes ${plainEnd}. Speculative decoding is ${times(plainEnd / end)} as fast${slower}. `
    + "The costs are those set under “My machine”.";
}

/** The lanes at the time that is set: tokens that are written, and what is going on. */
export function tellTime(view) {
  const lanes = lanesOf(view);
  const now = view.state.clock;
  byId("clock").value = now;
  put("clock-value", fixed(now, 1));
  for (const [name, lane] of Object.entries(lanes)) {
    put(`${name}-now`, doing(lane, now));
    byId(`${name}-bar`).style.width = `${Math.min(100, (100 * now) / endOf(lane))}%`;
    byId(`${name}-words`).querySelectorAll(".block").forEach((block, number) =>
      block.classList.toggle("later", lane[number].end > now + 1e-9));
  }
}

/** Both lanes, written again, at the time when the faster one ends. */
export function drawClock(view) {
  const lanes = lanesOf(view);
  const ends = Object.values(lanes).map(endOf);
  view.state.clock = Math.min(...ends);
  byId("clock").max = Math.ceil(10 * Math.max(...ends)) / 10;
  byId("clock-play").hidden = isStill();
  put("clock-words", sentenceOf(view, lanes));
  put("drafted-name", `Speculative decoding, ${shapeWords(view.state.shape)}`);
  const alone = {
    blocks: lanes.plain,
    tokens: view.cut.tokens.map((token, block) => ({ ...token, kind: "plain", block, place: 0 })),
  };
  const drawn = (token) => shownToken(view, token);
  put("drafted-words", coloured(view, view.cut, null, drawn));
  put("plain-words", coloured(view, alone, null, drawn));
  tellTime(view);
}

let running = null;

export function stopClock() {
  clearInterval(running);
  running = null;
  byId("clock-play").textContent = "Play";
}

/** Let the clock run from the start, or from where it stands; a second call stops it. */
export function runClock(view) {
  if (running !== null) {
    stopClock();
    return;
  }
  const last = Number(byId("clock").max);
  const isOver = view.state.clock >= Math.min(...Object.values(lanesOf(view)).map(endOf)) - 1e-9;
  if (isOver) view.state.clock = 0;
  byId("clock-play").textContent = "Pause";
  running = setInterval(() => {
    view.state.clock = Math.min(last, view.state.clock + last / TICKS);
    tellTime(view);
    if (view.state.clock >= last) stopClock();
  }, TICK_MS);
}
