// A file dropped or chosen, translated and given back.
import { $, el, failed, fault, say } from "./dom.js";
import * as net from "./net.js";
import { leftNote, pair, sourceCode } from "./translate.js";
import { t } from "./words.js";

let running = new AbortController();

async function send(file) {
  running.abort();
  running = new AbortController();
  fault("");
  const line = $("filed");
  line.hidden = false;
  line.textContent = t("fileWorking", file.name);
  try {
    const fields = { file, source: sourceCode() || "auto", target: pair().target };
    const { translatedFileUrl, untranslated } = await net.postFile("translate_file", fields, running.signal);
    const address = translatedFileUrl.slice(translatedFileUrl.lastIndexOf("/download_file/") + 1);
    const name = decodeURIComponent(address).replace(/^download_file\/[^.]*\./, "");
    line.replaceChildren(
      t("fileReady", file.name),
      " ",
      el("a", { href: address, download: name }, t("save", name)),
      untranslated ? ` ${leftNote(untranslated)}` : "",
    );
    say(t("fileReady", file.name));
  } catch (error) {
    line.hidden = true;
    failed(error);
  }
}

function take(files) {
  if (files.length > 1) fault(t("fileTooMany"));
  else if (files.length) send(files[0]);
}

const open = () => $("file").click();

export const ACTIONS = { KeyO: ["keyFile", open] };

export function start(formats) {
  $("pick").hidden = false;
  $("pick").title = formats.join(" ");
  $("file").accept = formats.join(",");
  $("pick").addEventListener("click", open);
  $("file").addEventListener("change", () => {
    take($("file").files);
    $("file").value = "";
  });
  const holds = (e) => [...e.dataTransfer.types].includes("Files");
  const over = (on) => $("drop").classList.toggle("over", on);
  document.addEventListener("dragover", (e) => {
    if (!holds(e)) return;
    e.preventDefault();
    over(true);
  });
  document.addEventListener("dragleave", (e) => e.relatedTarget || over(false));
  document.addEventListener("drop", (e) => {
    over(false);
    if (!holds(e)) return;
    e.preventDefault();
    take(e.dataTransfer.files);
  });
}
