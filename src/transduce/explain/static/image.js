// Images of a live page: chosen or dropped, one of the examples, or those of a link.
const IMAGES = { facts: null, drawn: new Map() };

function canvasOf(w, h, draw) {
  const canvas = el("canvas", { width: w, height: h }),
    g = canvas.getContext("2d", { willReadFrequently: true });
  draw(g);
  return [canvas, g];
}
// NAME:BYTES of an image file, on white where it is transparent.  Rejects for what is no image.
async function typedImage(name, file) {
  const image = await createImageBitmap(file),
    [w, h] = [image.width, image.height];
  const [, g] = canvasOf(w, h, (g) => {
    g.fillStyle = "white";
    g.fillRect(0, 0, w, h);
    g.drawImage(image, 0, 0);
  });
  return `${name.replace(/\s/g, " ")}:${textOfBytes(fitted(g.getImageData(0, 0, w, h).data, w, h, IMAGES.facts))}`;
}
// The pictures of the examples as texts, before anything is computed.
async function readExamples() {
  for (const example of EXAMPLES) {
    const name = example.inputs.image.split(/[\\/]/).at(-1);
    example.typed = [await typedImage(name, new Blob([bytes(example.picture.png)], { type: "image/png" }))];
  }
}
// A picture of the pixels of a text, as base64 of a PNG.
function pngOf(text) {
  if (!IMAGES.drawn.has(text)) {
    const { size, channels } = IMAGES.facts,
      { pixels } = imageOf(text, IMAGES.facts),
      n = size * size;
    const [canvas] = canvasOf(size, size, (g) => {
      const whole = g.createImageData(size, size);
      for (let k = 0; k < n; k++)
        for (let c = 0; c < 4; c++) whole.data[4 * k + c] = c === 3 ? 255 : pixels[(channels === 1 ? 0 : c * n) + k];
      g.putImageData(whole, 0, 0);
    });
    IMAGES.drawn = new Map([[text, canvas.toDataURL("image/png").split(",")[1]]]);
  }
  return IMAGES.drawn.get(text);
}
const thumbnail = ({ picture, inputs }) =>
  el("img", { src: `data:image/png;base64,${picture.png}`, alt: visible(inputs.image), class: "thumbnail" });
async function takeImage(file) {
  if (!file) return;
  try {
    live.type({ text: await typedImage(file.name, file) });
  } catch {
    live.fault = t("noImage", isolated(file.name));
    render();
  }
}
// A field that takes a file; the whole window takes one that is dropped.
function imageField() {
  const choose = ({ target }) => {
    const [file] = target.files;
    target.value = ""; // so that the same file may be chosen again
    takeImage(file);
  };
  const attributes = { type: "file", accept: "image/*", "data-k": "file", onchange: choose },
    words = el("span", {}),
    field = el("label", { class: "file" }, el("input", attributes), words);
  addEventListener("dragover", (e) => e.preventDefault());
  addEventListener("drop", (e) => {
    e.preventDefault();
    takeImage(e.dataTransfer.files[0]);
  });
  return Object.assign(field, { tell: () => (words.textContent = t("chooseImage")) });
}
