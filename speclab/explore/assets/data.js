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

/** One column of one text. */
export function columnOf(run, text, name) {
  const first = run.first[text];
  return run.columns[name].subarray(first, first + run.length[text]);
}
