/** One output of a search. */
export interface Candidate {
  text: string;
  tokens: string[];
  /** Ranking score: the log-probability with the run's length penalty. */
  score: number;
  /** Natural logarithm of the probability. */
  log_prob: number;
}
/** The best output, and the `n_best` of the search. */
export interface Translation extends Candidate {
  candidates: Candidate[];
}
export interface Settings {
  n_best?: number;
  beam?: number;
  from?: string;
  to?: string;
}
export interface Model {
  /**
   * Lines stay lines; a blank text has no tokens.  `beam`: hypotheses, by default the recipe's.  `from`, `to`: languages of a
   * model of several, which tags such as "<de> <fr> " before a text name as well.
   */
  translate(text: string, settings?: Settings): Promise<Translation>;
}
/** The model of a file that `transduce export RUN FILE.transduce --format npm` wrote. */
export function load(file: ArrayBuffer | Uint8Array): Promise<Model>;
