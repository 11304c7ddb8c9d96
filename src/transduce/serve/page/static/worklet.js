// Samples of the microphone, as 16-bit numbers, to the page.
const FULL = 32767;

registerProcessor(
  "samples",
  class extends AudioWorkletProcessor {
    process([[samples]]) {
      if (samples) this.port.postMessage(Int16Array.from(samples, (x) => Math.max(-1, Math.min(1, x)) * FULL));
      return true;
    }
  },
);
