// Requests to the server that gave this page, and their errors as one line.
import { t } from "./words.js";

let key = "";
export const setKey = (value) => {
  key = value;
};
export const theKey = () => key;

export class Fault extends Error {}

const KINDS = { rate_limit: "busy", unavailable: "loading" };

// The line for an error of the server, whichever of its shapes it has.
function lineOf(error) {
  const kind = error && error.kind;
  return kind in KINDS ? t(KINDS[kind]) : String((error && error.message) || error || t("broken"));
}

async function answered(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Fault(t("gone"));
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  throw new Fault(response.status === 429 ? t("busy") : lineOf(answer.error));
}

const posted = (body, signal) => ({
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(key ? { ...body, api_key: key } : body),
  signal,
});

export const get = async (path) => (await answered(path, {})).json();
export const post = async (path, body, signal) => (await answered(path, posted(body, signal))).json();

export const postForBlob = async (path, body, signal) => (await answered(path, posted(body, signal))).blob();

export async function postFile(path, fields, signal) {
  const form = new FormData();
  for (const [name, value] of Object.entries(key ? { ...fields, api_key: key } : fields)) form.append(name, value);
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  return (await answered(path, { method: "POST", body: form, headers, signal })).json();
}

// Server-sent events of a POST, one by one.
export async function* events(path, body, signal) {
  const response = await answered(path, posted(body, signal));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  let ended = false;
  try {
    while (true) {
      const { value, done } = await reader.read();
      if (done) break;
      const parts = (waiting + value).split("\n\n");
      waiting = parts.pop();
      for (const part of parts) {
        const event = JSON.parse(part.slice("data: ".length));
        if (event.error) throw new Fault(lineOf(event.error));
        ended = Boolean(event.done);
        yield event;
      }
    }
  } catch (error) {
    if (error.name === "AbortError" || error instanceof Fault) throw error;
    throw new Fault(t("broken"));
  } finally {
    reader.cancel().catch(() => {});
  }
  if (!ended) throw new Fault(t("broken"));
}
