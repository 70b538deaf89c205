// What `trace_data.py` packed, unpacked: runs as columns and texts. Knows no page.

const ARRAYS = { uint16: Uint16Array, uint32: Uint32Array, float32: Float32Array };

export const SHARES = 65535; // a probability is kept as a whole number of parts of one
export const NATS = 1000; // an entropy as a whole number of parts of a nat

export function canUnpack() {
  return typeof DecompressionStream === "function";
}

function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function gunzip(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

/** The packed runs: the header of `trace_data.pack_runs`, each run with its `columns` by name
 * and the `first` row of each text. */
export async function unpack(base64) {
  const buffer = await gunzip(bytesOf(base64));
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  header.runs.forEach((run, number) => {
    run.columns = {};
    for (const [name, [kind, offset, count]] of Object.entries(header.columns)) {
      const [owner, column] = name.split(".");
      if (Number(owner) !== number) continue;
      run.columns[column] = new ARRAYS[kind](buffer, 4 + length + offset, count);
    }
    let row = 0;
    run.first = run.length.map((tokens) => (row += tokens) - tokens);
  });
  return header;
}

/** One column of one text, `width` entries a token. */
export function columnOf(run, text, name, width = 1) {
  const first = run.first[text];
  return run.columns[name].subarray(first * width, (first + run.length[text]) * width);
}

const OF_BLOCKS = { draft_rank: "block_ranks", q_token: "block_q" };

/** The draft's rank or q of a text's tokens: a function of where a block begins and of the place in
 * it, from 0. Of a head both matter, and it is undefined beyond the recorded `ahead` tokens; of any
 * other draft only their sum does. */
export function draftedOf(run, text, name) {
  const own = columnOf(run, text, name);
  if (!run.ahead) return (start, place) => own[start + place];
  const lists = columnOf(run, text, OF_BLOCKS[name], run.ahead);
  const one = name === "q_token" && lists instanceof Uint16Array ? SHARES : 1;
  return (start, place) => {
    if (!place) return own[start];
    return place < run.ahead ? lists[start * run.ahead + place] / one : undefined;
  };
}
