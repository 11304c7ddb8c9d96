// The microphone, and its words while one speaks.
import * as net from "./net.js";

const RATE = 16000; // samples a second
const EVERY = 1000; // milliseconds between two requests
const CONTEXT = 5; // seconds before the open words, by which the server knows the noise
const HEAD = 44; // bytes of a WAV file before its samples

function joined(blocks) {
  const samples = new Int16Array(blocks.reduce((n, block) => n + block.length, 0));
  let at = 0;
  for (const block of blocks) {
    samples.set(block, at);
    at += block.length;
  }
  return samples;
}

// A WAV file of samples of 16 bits in one channel.
function wav(name, blocks, rate) {
  const samples = joined(blocks);
  const head = new DataView(new ArrayBuffer(HEAD));
  const text = (at, word) => [...word].forEach((c, i) => head.setUint8(at + i, c.charCodeAt(0)));
  text(0, "RIFF");
  head.setUint32(4, HEAD - 8 + samples.byteLength, true);
  text(8, "WAVEfmt ");
  [16, 0x10001].forEach((n, i) => head.setUint32(16 + 4 * i, n, true)); // linear, one channel
  [rate, 2 * rate, 0x100002].forEach((n, i) => head.setUint32(24 + 4 * i, n, true)); // 2 bytes, 16 bits
  text(36, "data");
  head.setUint32(40, samples.byteLength, true);
  return new File([head, samples], name, { type: "audio/wav" });
}

// The microphone; `add` is given its samples.
async function opened(add) {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  let context = new AudioContext({ sampleRate: RATE });
  let source;
  try {
    source = context.createMediaStreamSource(stream);
  } catch {
    await context.close(); // a browser that does not resample: the server does
    context = new AudioContext();
    source = context.createMediaStreamSource(stream);
  }
  await context.audioWorklet.addModule(new URL("worklet.js", import.meta.url));
  const node = new AudioWorkletNode(context, "samples", { channelCount: 1, channelCountMode: "explicit" });
  node.port.onmessage = (event) => add(event.data);
  source.connect(node).connect(context.destination); // silent
  await context.resume();
  const close = async () => {
    for (const track of stream.getTracks()) track.stop();
    await context.close();
  };
  return { rate: context.sampleRate, close };
}

// Record, and show each answer of the server; returns the recording.
// model, name: of the run and the recording.  begun: given the function that ends it.  show, failed: given answers, errors.
export async function listen({ model, name, signal, begun, show, failed }) {
  const [whole, fresh] = [[], []];
  let open = []; // blocks of what the server needs
  let state = {};
  let over = false;
  const microphone = await opened((block) => fresh.push(block));
  const { rate } = microphone;
  const ask = async (last) => {
    const blocks = fresh.splice(0);
    for (const block of blocks) whole.push(block);
    open = [joined([...open, ...blocks])];
    const file = wav(name, open, rate);
    const answer = await net.postFile("page/speech", { file, model, state: JSON.stringify(state), last }, signal);
    const dropped = Math.max(0, Math.floor(answer.state.done - CONTEXT));
    open = [open[0].subarray(dropped * rate)];
    state = { ...answer.state, done: answer.state.done - dropped };
    show(answer);
  };
  try {
    const end = new Promise((resolve) => {
      signal.addEventListener("abort", resolve);
      begun(resolve);
    }).then(() => {
      over = true;
    });
    while (!over) {
      await Promise.race([end, new Promise((resolve) => setTimeout(resolve, EVERY))]);
      if (!over) await ask(false).catch(failed); // its sound is sent again
    }
  } finally {
    await microphone.close();
  }
  await ask(true);
  return wav(name, whole, rate);
}
