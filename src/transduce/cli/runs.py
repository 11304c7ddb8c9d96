"""Verbs on run directories: `import`, `export`, `publish`, `average`, `merge`, `info`,
`recipes`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, validators

from transduce.cli.options import Flag, Machine
from transduce.cli.output import print_json, print_lines
from transduce.errors import DataError, RunError, SettingError


def average(
    *runs: Path,
    output: Path,
    last: Annotated[int, Parameter(validator=validators.Number(gte=0), show_default=False)] = 0,
) -> None:
    """Average the weights of runs or checkpoints.

    Prints the new run directory.

    Parameters
    ----------
    runs
        Run directories with the same vocabulary, architecture and inputs; dropout may differ.
    output
        Run directory to create.
    last
        Checkpoint averaging: use the last N checkpoints of each run instead of its final weights.
    """
    from transduce.runs.importing import average_runs

    average_runs(runs, output, last)
    print_lines(str(output))


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
    again: Flag = False,
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
    again
        Replace an existing file.
    """
    from transduce.runs.exporting import export_run

    print_lines(str(export_run(run, directory, precision, form, _pair(languages), again)))


def _pair(languages: str) -> tuple[str, str] | None:
    if not languages:
        return None
    source, _, target = languages.partition("-")
    if not source or not target:
        raise SettingError(f"--languages {languages!r} must be two codes with a hyphen: de-en")
    return source, target


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
    languages: str = "",
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
        a checkpoint of OpenNMT-py (.pt), beside its SentencePiece model; an encoder of
        speakers (pretrained.pt of Resemblyzer), for `transcribe --speakers`; or a .zip that a page
        of `transduce page` saved.
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
    languages
        Codes of the source and the target language of a translation model, such as en-pt, by
        default those that its files name.
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
    print_lines(str(import_run(directory, run, overwrite, overrides, language, _pair(languages))))


def info(run: Path, /, *, json: Flag = False) -> None:
    """Show the model size, settings, scores and checkpoints of a run.

    Parameters
    ----------
    run
        Run directory.
    json
        Print a JSON object.
    """
    from transduce.runs.exporting import export_refusals

    loaded = Machine(device="cpu", engine="pytorch").load(run)
    refusals = export_refusals(loaded.predictor, loaded.recipe.task)
    facts = {**loaded.info(), "exports": [form for form, reason in refusals.items() if not reason]}
    native = facts["native_engine"].startswith("yes")
    facts["engine"] = "native" if native else "pytorch"  # which --engine auto takes on a CPU
    if json:
        print_json(facts)
    else:
        print_lines(*_readable(facts))


def _readable(facts: dict[str, Any]) -> Iterator[str]:
    """Lines of names and values, then the recipe as TOML."""
    import tomli_w

    for name, value in facts.items():
        if name != "recipe":
            yield f"{name.replace('_', ' '):<20}{_shown(value)}"
    yield ""
    yield from tomli_w.dumps(facts["recipe"]).splitlines()


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {score:.4g}" for name, score in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


def merge(base: Path, adapter: Path, output: Path, /) -> None:
    """Merge a LoRA adapter into its base run.

    Prints the new run directory.

    Parameters
    ----------
    base
        Run directory of the base model.
    adapter
        Run directory of the fine-tuned adapter: adapter.safetensors, recipe.toml and the
        vocabulary; its weights are not needed.
    output
        Run directory to create.
    """
    from transduce.recipes import read_recipe
    from transduce.runs.directory import write_run
    from transduce.tasks.model_card import code
    from transduce.training.fine_tuning import ADAPTER_FILE, apply_adapter
    from transduce.training.weights import read_tensors

    if output.exists():
        raise RunError(f"{output} already exists; give another OUTPUT")
    recipe = read_recipe(adapter)
    if not (adapter / ADAPTER_FILE).is_file():
        raise RunError(f"{adapter} has no {ADAPTER_FILE}; give a run trained with fine_tune.lora")
    weights = apply_adapter(read_tensors(base / "weights.safetensors"), adapter / ADAPTER_FILE)
    names = [code(run.resolve().name) for run in (base, adapter)]
    description = f"The run {names[0]} with the adapter of {names[1]} merged into it."
    write_run(output, recipe, (adapter, base), description, weights)
    print_lines(str(output))


def publish(run: Path, directory: Path, /, *, licence: str = "") -> None:
    """Write the files of a run that others need, as the Hub expects them.

    Model card with metadata, weights, tokenizers, and the recipe without paths of this machine.
    Nothing is uploaded. `transduce import DIRECTORY RUN` makes a run of it again.

    Parameters
    ----------
    run
        Run directory of a trained model.
    directory
        Directory to create.
    licence
        Licence of the model, as an identifier of the Hub: apache-2.0, mit, cc-by-4.0.
    """
    from transduce.runs.exporting import publish_run

    print_lines(str(publish_run(run, directory, licence)))


def recipes(name: str = "", /) -> None:
    """List the recipes that come with the package, or print one.

    A recipe names its data at its head; `transduce recipes NAME > my.toml` makes a copy to change.

    Parameters
    ----------
    name
        Name of the recipe to print, such as translation/multi30k-en-de.
    """
    from transduce.recipes import recipe_names, recipe_purpose, recipe_text
    from transduce.support.tables import table

    if name:
        print_lines(*recipe_text(name).splitlines())
    else:
        rows = [(recipe, recipe_purpose(recipe)) for recipe in recipe_names()]
        if not rows:
            raise DataError("this installation carries no recipes; they come with transduce itself")
        print_lines(*table(["recipe", "purpose"], rows))
