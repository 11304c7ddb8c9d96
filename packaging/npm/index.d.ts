/** One output of a search. */
export interface Candidate {
  text: string;
  tokens: string[];
  /** Ranking score: the log-probability with the run's length penalty. */
  score: number;
  /** Natural logarithm of the probability. */
  log_prob: number;
}
/** The best output, and the `n_best` of the search; `beam`: its hypotheses, by default the recipe's. */
export interface Translation extends Candidate {
  candidates: Candidate[];
}
export interface Model {
  /** Lines stay lines; a blank text has no tokens. */
  translate(text: string, settings?: { n_best?: number; beam?: number }): Promise<Translation>;
}
/** The model of a file that `transduce export RUN FILE.transduce --format npm` wrote. */
export function load(file: ArrayBuffer | Uint8Array): Promise<Model>;
