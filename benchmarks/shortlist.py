"""A vocabulary shortlist in the native engine's search: words per CPU-second and BLEU, with it and
without, by turns.

    transduce shortlist RUN
    python benchmarks/shortlist.py RUN SOURCES REFERENCES --precision int8
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from decoding_run import read
from sacrebleu.metrics.bleu import BLEU
from workload import median, timed

import transduce
from transduce.support.work import chunks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("sources", type=Path)
    parser.add_argument("references", type=Path)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--count", type=int, default=10**9, help="lines of the files")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    sources, references = (
        read(path)[: options.count] for path in (options.sources, options.references)
    )
    run = transduce.load(options.run, "cpu", options.precision, "native")
    print("batch beam  words per CPU-second: whole  shortlist  ratio   BLEU: whole  shortlist")
    for together in (1, 32):
        batches = list(chunks(sources, together))
        for beam in (1, 4):
            speeds, scores = [], []
            settings = [
                replace(run.translator.options, beam_size=beam, shortlist=short)
                for short in (False, True)
            ]
            for _ in range(options.rounds):
                for setting in settings:

                    def work(setting: transduce.DecodingOptions = setting) -> list[str]:
                        parts = (run.translate_batch(chunk, setting) for chunk in batches)  # noqa: B023
                        return [translation.text for part in parts for translation in part]

                    spent, outputs = timed(work)
                    speeds.append(sum(len(text.split()) for text in outputs) / spent.cpu)
                    scores.append(BLEU().corpus_score(outputs, [references]).score)
            whole, short = (median(speeds[side::2]) for side in range(2))
            ratio = median([b / a for a, b in zip(speeds[::2], speeds[1::2], strict=True)])
            print(
                f"{together:5} {beam:4} {whole:33.0f} {short:10.0f} {ratio:6.2f} "
                f"{scores[0]:14.2f} {scores[1]:10.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
