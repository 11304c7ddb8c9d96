"""`transduce import`: convert a Hugging Face model into a run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.cli.options import Flag
from transduce.cli.output import print_lines
from transduce.errors import SettingError


def import_(
    directory: Path,
    run: Path,
    /,
    *,
    overrides: Annotated[tuple[str, ...], Parameter(name="--set", show_default=False)] = (),
    add_language: Annotated[
        str | None, Parameter(name="--add-language", show_default=False)
    ] = None,
    like: Annotated[str | None, Parameter(show_default=False)] = None,
    text: Annotated[Path | None, Parameter(show_default=False)] = None,
    pieces: int = 2000,
    overwrite: Flag = False,
) -> None:
    """Import a model of Hugging Face (BERT, GPT-2, NLLB, …), CTranslate2, Marian or OpenNMT-py.

    Reads config.json, the tokenizer files, and safetensors weights or model.bin; no pickled code.
    Prints the run directory, for predict, translate or fine-tuning (fine_tune.run in a recipe).

    Parameters
    ----------
    directory
        Local model directory, as written by `save_pretrained` or downloaded as a repository, with a
        model.bin of CTranslate2, or with a model (.npz, .bin) and a vocabulary (.spm) of Marian; or
        a checkpoint of OpenNMT-py (.pt), beside its SentencePiece model.
    run
        Run directory to create.
    overrides
        Override a setting of the new recipe: SECTION.NAME=VALUE. May be repeated. Sentence-pair
        classifiers need data.pairs=true.
    add_language
        Code of a language to add to a model of many, such as lld; then fine-tune the run with pairs
        in it. DIRECTORY may be a run as well.
    like
        Language of the model that the new one begins as; by default the mean of all.
    text
        File of texts in the new language, from which pieces are learnt for the vocabulary.
    pieces
        Maximum number of pieces learnt.
    overwrite
        Replace an existing run.
    """
    from transduce.runs.importing import import_run

    language = None
    if add_language is not None:
        from transduce.interop.new_language import NewLanguage

        language = NewLanguage(add_language, like, text, pieces)
    elif like is not None or text is not None:
        raise SettingError("--like and --text describe a language; add --add-language CODE")
    print_lines(str(import_run(directory, run, overwrite, overrides, language)))
