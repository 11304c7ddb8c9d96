// Views of models of other tasks: inputs, and the answer as its fields say.
import { $ } from "./dom.js";
export const refresh = () => {};
export function start(models, translates) {
  $("translation").hidden = !translates;
}
