// Small helpers to write elements. Text always goes in as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("aria-")) element.setAttribute(name, String(value));
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, String(value));
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

export function el(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

export function byId(id) {
  return document.getElementById(id);
}

/** A place's content, replaced. */
export function put(id, ...children) {
  byId(id).replaceChildren(...children.flat().filter((child) => child != null));
}

const MARKS = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "⏎" };
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

/** Text with white space as signs and other unseen characters as U+FFFD, as pictures.marked. */
export function marked(text) {
  return text.replace(/[ \n\t\r]/g, (c) => MARKS[c]).replace(UNSEEN, "\ufffd");
}

/** Text with unseen characters other than white space as U+FFFD. */
export function seen(text) {
  return text.replace(/(?![\n\r\t])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, "\ufffd");
}

/** Text to read: `seen`, its spaces as they are, its line ends and tabs shown and kept. */
export function readable(text) {
  return seen(text).replace(/\r\n?|\n/g, "⏎\n").replace(/\t/g, "⇥\t");
}

export function shortened(text, longest) {
  const letters = [...text];
  return letters.length <= longest ? text : letters.slice(0, longest - 1).join("") + "…";
}

/** A token inside a sentence: marked, isolated from the direction of the text around it. */
export function word(text, longest = 24) {
  return el("code", { class: "word", dir: "auto" }, shortened(marked(text), longest) || "∅");
}

/** A probability in few figures. */
export function share(value) {
  if (value < 0.001) return "<0.001";
  return value.toFixed(value < 0.1 ? 3 : 2);
}

/** "72 %". */
export function percent(value) {
  return `${Math.round(100 * value)} %`;
}

/** "p = 0.17", or "p < 0.001". */
export function valued(name, value) {
  const text = share(value);
  return text.startsWith("<") ? `${name} < ${text.slice(1)}` : `${name} = ${text}`;
}

export function fixed(value, digits = 2) {
  return value.toFixed(digits);
}

export function plural(count, one, many = `${one}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

/** "1 target pass", "27 target passes". */
export function targetPasses(count) {
  return plural(count, "target pass", "target passes");
}

/** "1.35x". */
export function times(value) {
  return `${fixed(value)}x`;
}

/** "2.15 [2.05, 2.24]"; the number alone where there is no interval. */
export function withInterval(value, bounds, unit = "") {
  const number = `${fixed(value)}${unit}`;
  return bounds ? `${number} [${bounds.map((bound) => fixed(bound)).join(", ")}]` : number;
}

/** "math", "math and chat", "code, math and chat". */
export function listed(names) {
  const last = names[names.length - 1];
  return names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${last}` : last;
}

const COUNTS = ["no", "one", "two", "three", "four", "five", "six"];

/** "four", "12". */
export function inWords(count) {
  return COUNTS[count] ?? String(count);
}

const ORDINALS = ["first", "second", "third", "fourth", "fifth"];

/** "second choice", "choice 12" of a rank from 0. */
export function choiceName(rank) {
  return ORDINALS[rank] ? `${ORDINALS[rank]} choice` : `choice ${rank + 1}`;
}

/** Are animations unwanted? */
export function isStill() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}
