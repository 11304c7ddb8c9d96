"""Export of a run to a directory of CTranslate2: `export_run`."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Sequence
from pathlib import Path

from transduce.errors import RunError
from transduce.interop.ctranslate2 import check_expressible, library, write_ctranslate2
from transduce.nn.kernels.linear import Precision
from transduce.run import load
from transduce.run_directory import written_aside
from transduce.tasks.translation.ctranslate2 import positions_for
from transduce.tasks.translation.task import TrainedTranslator
from transduce.text import SubwordTokenizer, Tokenizer
from transduce.training.weights import write_text

SNIPPET = """\
```python
import ctranslate2, sentencepiece

source = sentencepiece.SentencePieceProcessor("{source}")
target = sentencepiece.SentencePieceProcessor("{target}")
translator = ctranslate2.Translator(".")
tokens = [source.encode(text, out_type=str) for text in texts]
for result in translator.translate_batch(tokens, beam_size={beam_size}, max_input_length=0):
    print(target.decode(result.hypotheses[0]))
```
"""


def export_run(
    run: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    precision: Precision = "float32",
) -> Path:
    """Write a run that translates as the directory of a CTranslate2 model, with its tokenizer.

    precision: of the weights there; "int8" is a quarter of the size.  Raises RunError where the
    directory is there already, and for a run that CTranslate2 cannot express; SettingError where
    the extra `ctranslate2` is missing.  Whatever happens, the directory is whole or not there.
    """
    path = Path(directory)
    if path.exists() or path.is_symlink():
        raise RunError(f"{path} exists; give another DIRECTORY")
    library()
    predictor = load(run, "cpu").predictor
    if not isinstance(predictor, TrainedTranslator):
        raise RunError(f"{run} does not turn text into text; only runs of translation are exported")
    check_expressible(predictor.recipe.model)
    with written_aside(path) as aside:
        write_ctranslate2(
            predictor.model,
            predictor.recipe.model,
            aside,
            _names(predictor.source),
            _names(predictor.target),
            positions_for(predictor),
            precision,
        )
        files = _write_tokenizers(predictor, aside)
        write_text(aside / "README.md", _card(Path(run), predictor, files))
        aside.rename(path)
    return path


def _names(tokenizer: Tokenizer) -> list[str]:
    """Names of the ids in other programs: pieces, or the number if another id has that name."""
    names: dict[str, None] = {}
    for i, piece in enumerate(tokenizer.tokens(range(tokenizer.size))):
        names[f"<id {i}>" if piece in names else piece] = None
    return list(names)


def _write_tokenizers(translator: TrainedTranslator, directory: Path) -> Sequence[Path]:
    """The file of both sides, or those of source and target."""
    source, target = translator.source, translator.target
    named = {"source": source, "target": target}
    if source is target:
        named = {"": source}
    files = []
    for side, tokenizer in named.items():
        name = f"{side}_tokenizer{tokenizer.suffix}".lstrip("_")
        if isinstance(tokenizer, SubwordTokenizer):
            name = f"{side}.spm" if side else "sentencepiece.model"
        tokenizer.save(directory / name)
        files.append(directory / name)
    return files


def _card(run: Path, translator: TrainedTranslator, files: Sequence[Path]) -> str:
    """A page that says how to use the directory."""
    name, names = run.resolve().name, " and ".join(f"`{file.name}`" for file in files)
    told = (
        f"# {name}\n\n"
        f"A CTranslate2 model, exported from the run `{name}` by transduce "
        f"{importlib.metadata.version('transduce')}.\n\n"
    )
    sides = (translator.source, translator.target)
    if not all(isinstance(side, SubwordTokenizer) for side in sides):
        return (
            f"{told}{names}: for `transduce.text.load_tokenizer`, which cuts texts into tokens.\n"
        )
    beam = translator.options.beam_size
    told += f"{names}: SentencePiece.\n\n"
    told += SNIPPET.format(source=files[0].name, target=files[-1].name, beam_size=beam)
    normalizer = translator.source.normalizer
    if normalizer.lowercase:
        told += "\nWrite texts in lower case before that.\n"
    if normalizer.normalization != "none":
        told += f"\nBring texts into Unicode form {normalizer.normalization.upper()} before that.\n"
    return told
