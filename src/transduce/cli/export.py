"""`transduce export`: convert a run for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from transduce.cli.output import print_lines
from transduce.errors import SettingError


def export(
    run: Path,
    directory: Path,
    /,
    *,
    form: Annotated[
        Literal["ctranslate2", "argos", "marian", "bergamot", "onnx", "html", "npm"],
        Parameter(name="--format"),
    ] = "ctranslate2",
    precision: Literal["float32", "int8"] | None = None,
    languages: str = "",
) -> None:
    """Export a run for CTranslate2, Argos Translate, transformers, ONNX Runtime or a web page.

    Writes the converted model, its vocabularies, the tokenizer and a README with usage, or one page
    that translates as one types, without a network. Prints the path.

    Parameters
    ----------
    run
        Run directory of a translation model; of an encoder of texts, too, with --format onnx.
    directory
        Directory to create; a file to create with --format argos, ending in .argosmodel, with
        --format html, ending in .html, and with --format npm, ending in .transduce.
    form
        Output format: a directory of CTranslate2 (ctranslate2), a package of Argos Translate and
        LibreTranslate (argos), a directory of Hugging Face's MarianMTModel (marian), a directory
        for Marian itself and for Bergamot's engines (bergamot), a directory of ONNX graphs with
        their tokenizer (onnx), a web page (html), or a model for the npm package (npm).
    precision
        Numeric precision of the weights, by default float32, for html and npm int8, which quantises
        matrices to a quarter of the size.
    languages
        Codes of the source and the target language, such as de-en; for argos.
    """
    from transduce.runs.exporting import export_run

    print_lines(str(export_run(run, directory, precision, form, _pair(languages))))


def _pair(languages: str) -> tuple[str, str] | None:
    if not languages:
        return None
    source, _, target = languages.partition("-")
    if not source or not target:
        raise SettingError(f"--languages {languages!r} must be two codes with a hyphen: de-en")
    return source, target
