"""Export of a run for other programs, and its publication."""

import json
import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any, Literal, get_args

import numpy as np

from transduce.decoding.options import DecodingOptions, Exports, facts_of_options, not_followed
from transduce.errors import RunError, SettingError, TransduceError
from transduce.interop import argos, ctranslate2
from transduce.interop.argos import check_settings, pieces_file
from transduce.interop.ctranslate2 import write_ctranslate2
from transduce.interop.marian_export import (
    Quantised,
    bergamot_files,
    check_bergamot,
    check_expressible,
    marian_directory,
    sizes,
)
from transduce.interop.marian_import import MULTIPLIERS
from transduce.interop.onnx_graphs import write_encoder, write_encoder_decoder
from transduce.interop.read import Lists
from transduce.interop.tokenizer_json import Part, exported_id, exported_token, tokenizer_json
from transduce.nn.precision import Precision
from transduce.nn.stack_configs import TransformerConfig
from transduce.recipes import read_recipe
from transduce.runs.directory import copy_run, written_aside
from transduce.runs.run import LoadedRun, load_as
from transduce.settings.sections import to_dict, to_toml
from transduce.support.version import __version__
from transduce.tasks.text_encoder.predictor import EncoderPredictor
from transduce.tasks.translation.recipe import LANGUAGE_CODE, TranslationRecipe
from transduce.tasks.translation.shortlist import load_shortlist
from transduce.tasks.translation.translator import Translator
from transduce.text import BOS, EOS, PAD, UNK, HuggingFaceTokenizer, MarianTokenizer, Tokenizer
from transduce.text.imported import ImportedTokenizer
from transduce.text.subword import SubwordTokenizer
from transduce.training.weight_files import read_weights_header
from transduce.training.weights import read_divisors, write_tensors, write_text
from transduce.web.page import Additions, model_facts, model_file, offline_page

FAMILIES = {"post": ("marian", "bart"), "pre": ("m2m_100", "mbart")}
"""Type of a model, by the order of norms, without and with learned positions: readers of graphs
take only the names of settings from it.  Heads of another width are those of "t5"."""
MULTILINGUAL = {
    "NllbTokenizer": r"[a-z]{3}_[A-Z][a-z]{3}",
    "M2M100Tokenizer": r"__[a-z]{2,3}__",
    "MBart50Tokenizer": r"[a-z]{2}_[A-Z]{2}",
}
"""Tokens of languages, by the class of the tokenizer that has them."""
ROLES = {"pad_token": PAD, "unk_token": UNK, "bos_token": BOS, "eos_token": EOS}


def write_onnx(predictor: Any, task: str, directory: Path, positions: int) -> None:
    """Write graphs, tokenizers and settings of a predictor into a directory.

    positions: of tables without a limit of their own, and for outputs.  Raises RunError for a task
    or model without an ONNX export, SettingError if the extra `onnx` is missing.
    """
    graphs = directory / "onnx"
    graphs.mkdir(exist_ok=True)
    check_onnx(predictor, task)
    if isinstance(predictor, Translator):
        source, target = predictor.source, predictor.target
        write_encoder_decoder(predictor.model, source, target, positions, graphs)
        _write_translator(predictor, directory, positions)
    elif isinstance(predictor, EncoderPredictor):
        write_encoder(predictor.model, predictor.tokenizer, positions, graphs)
        _write_encoder(predictor, directory)


def check_onnx(predictor: Any, task: str) -> None:
    """Raises RunError, naming all settings, for a model without an ONNX export."""
    if isinstance(predictor, EncoderPredictor):
        return
    if not isinstance(predictor, Translator):
        raise RunError(f"ONNX export is for translation and encoders of texts, not {task}")
    config = predictor.recipe.model
    rows: list[tuple[str, Any, tuple[Any, ...]]] = []
    for side, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
        rows.append((f"model.{side}.kind", stack.kind, ("transformer",)))
    if isinstance(config.decoder, TransformerConfig):
        rows.append(("model.decoder.norm_order", config.decoder.norm_order, tuple(FAMILIES)))
    check_settings("ONNX export", rows, isinstance(predictor.source, ImportedTokenizer))


def _write_translator(translator: Translator, directory: Path, positions: int) -> None:
    source, target = translator.source, translator.target
    config = translator.recipe.model
    decoder = config.decoder
    assert isinstance(decoder, TransformerConfig)
    numbers = {f"{name}_id": exported_id(target, token) for name, token in ROLES.items()}
    ids = {name: number for name, number in numbers.items() if number >= 0}
    ids["decoder_start_token_id"] = ids["bos_token_id"]
    width = decoder.d_head or config.d_model // decoder.n_heads
    kind = FAMILIES[decoder.norm_order][decoder.positions == "learned"]
    widths = sizes(config)
    settings = {
        "model_type": kind if width * decoder.n_heads == config.d_model else "t5",
        "is_encoder_decoder": True,
        "vocab_size": target.size,
        "max_position_embeddings": positions,
        **widths,
        "num_layers": widths["encoder_layers"],
        "num_decoder_layers": decoder.n_layers,
        "num_heads": decoder.n_heads,
        "d_kv": width,
        **ids,
    }
    _write_json(directory / "config.json", settings)
    never = {ids.get("pad_token_id", -1), ids["bos_token_id"]} - {ids["eos_token_id"], -1}
    opening = [exported_id(target, token) for token in getattr(target, "opening", ())]
    generation = {
        **ids,
        "forced_bos_token_id": opening[0] if opening else None,
        "bad_words_ids": [[token] for token in sorted(never)],
        "num_beams": translator.options.beam_size,
        "max_length": positions,
    }
    _write_json(directory / "generation_config.json", generation)
    end = [EOS] if source.ends_sources else []
    for name, tokenizer in (("tokenizer", source), ("target_tokenizer", target)):
        before = getattr(tokenizer, "opening", ())
        single: list[Part] = [*before, "A", *getattr(tokenizer, "closing", ()), *end]
        if name == "tokenizer" or tokenizer is not source:
            _write_tokenizer(directory / name, tokenizer, {**ROLES}, (single, single), before)


def _write_encoder(predictor: EncoderPredictor[Any], directory: Path) -> None:
    tokenizer, config = predictor.tokenizer, predictor.config
    assert isinstance(config.encoder, TransformerConfig)
    labels = dict(enumerate(getattr(predictor, "labels", ())))
    settings = {
        "model_type": "bert" if config.segments else "distilbert",
        "vocab_size": tokenizer.size,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.encoder.n_layers,
        "num_attention_heads": config.encoder.n_heads,
        **({"id2label": labels, "label2id": {n: i for i, n in labels.items()}} if labels else {}),
    }
    _write_json(directory / "config.json", settings)
    roles = {**ROLES, "cls_token": BOS, "sep_token": EOS, "mask_token": tokenizer.size}
    pair: list[Part] = [BOS, "A", *[EOS] * tokenizer.marks_between, "B", EOS]
    _write_tokenizer(directory / "tokenizer", tokenizer, roles, ([BOS, "A", EOS], pair))


def _write_tokenizer(
    path: Path,
    tokenizer: Tokenizer,
    roles: dict[str, int],
    around: tuple[Sequence[Part], Sequence[Part]],
    opening: Sequence[int] = (),
) -> None:
    """Write a tokenizer, and how transformers reads it; one of letters or symbols as it is."""
    if not isinstance(tokenizer, HuggingFaceTokenizer | MarianTokenizer | SubwordTokenizer):
        return tokenizer.save(path.with_name(f"transduce_{path.name}{tokenizer.suffix}"))
    marks = tokenizer.numbering.marks.values() if isinstance(tokenizer, ImportedTokenizer) else ()
    definition = tokenizer_json(tokenizer, [*roles.values(), *marks], *around)
    _write_json(path.with_suffix(".json"), definition)
    language = exported_token(tokenizer, opening[0]) if opening else ""
    named = [kind for kind, form in MULTILINGUAL.items() if re.fullmatch(form, language)]
    settings = {"tokenizer_class": (*named, "PreTrainedTokenizerFast")[0]}
    settings |= {role: exported_token(tokenizer, token) for role, token in roles.items()}
    _write_json(path.with_name(f"{path.name}_config.json"), settings)
    return None


def _write_json(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


logger = logging.getLogger("transduce")

Format = Literal["ctranslate2", "argos", "marian", "bergamot", "onnx", "html", "npm"]
SUFFIXES = {"argos": ".argosmodel", "html": ".html", "npm": ".transduce"}
WEB = ("html", "npm")
"""Names of files end so; other formats are directories."""
POSITIONS = 1024
MAX_POSITIONS = 1 << 14
"""Least positions of an exported model without a limit of its own, and most for its outputs."""
ARGOS = """\
`argospm install FILE` installs it, for LibreTranslate, too.  Nothing is downloaded: a sentence
splitter is inside.
"""
MARIAN = """\
```python
from transformers import MarianMTModel, MarianTokenizer

tokenizer = MarianTokenizer.from_pretrained(".")
model = MarianMTModel.from_pretrained(".")
outputs = model.generate(**tokenizer(texts, return_tensors="pt", padding=True))
for text in tokenizer.batch_decode(outputs, skip_special_tokens=True):
    print(text)
```
"""
BERGAMOT = """\
`marian.yml` with `model.npz` is for Marian (`pip install pymarian`), `bergamot.yml` with
`model.intgemm8.bin` and `lex.bin` for Bergamot's engines, which translate in browsers and phones:

```python
import pymarian

translator = pymarian.Translator(config="marian.yml", cpu_threads=1, max_length=1000, quiet=True)
print(translator.translate(text))
```
"""
ONNX = "`onnx/` has its graphs, for ONNX Runtime, optimum and transformers.js.\n"
DIVISORS = {"none": 0.0, "mean": 1.0}
"""Exponent of the length that divides scores in Marian and transformers, by our penalty."""
SEARCH_WARNING = (
    "%s does not follow %s of this run, so some translations will differ; the same search here: %s "
    "in [decoding] of the recipe before the export, or as an option"
)
OTHER_PENALTY = """
transformers divides scores by the length where the run has length_penalty = {!r}: of the candidates
of one search another may win.
"""

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
    precision: Precision | None = None,
    form: Format = "ctranslate2",
    languages: tuple[str, str] | None = None,
    again: bool = False,
) -> Path:
    """Write a run that translates, or for `onnx` an encoder of texts, in the form of another
    program, with its tokenizer.

    form: `ctranslate2`, `marian`, `bergamot` and `onnx` are directories, `argos`, `html` and `npm`
    files, whose names end in `.argosmodel`, `.html` and `.transduce`.  precision: of the weights,
    by default "float32", for `html` and `npm` "int8", a quarter of the size; `bergamot` has both.
    languages: codes of source and target, which `argos` needs; by default the target's is the
    recipe's.

    Raises RunError if the path is there already, unless it is a file that `again` replaces, and for
    a run that the program cannot express; SettingError for options that do not fit, and where the
    extra is missing.
    Whatever happens, the result is whole or not there.
    """
    path = Path(directory)
    if path.is_file() and form in SUFFIXES:
        if not again:
            raise RunError(f"{path} exists; --again replaces it")
    elif path.exists() or path.is_symlink():
        raise RunError(f"{path} exists; give another {'FILE' if form in SUFFIXES else 'DIRECTORY'}")
    precision = precision or ("int8" if form in WEB else "float32")
    _check_options(path, precision, form, languages)
    loaded = load_as(LoadedRun, run, "cpu", engine="pytorch")
    if form != "onnx":
        _ = loaded.translator
    refusals = export_refusals(loaded.predictor, loaded.recipe.task)
    if refusal := refusals[form]:
        others = ", ".join(other for other, reason in refusals.items() if not reason)
        raise RunError(f"{refusal}; {run} can become {others or 'nothing else'}")
    if form == "onnx":
        with written_aside(path) as aside:
            write_onnx(loaded.predictor, loaded.recipe.task, aside, POSITIONS)
            write_text(aside / "README.md", _head(Path(run), "An ONNX model") + ONNX)
            aside.rename(path)
        return path
    predictor = loaded.translator
    if form in Exports._fields:
        _warn_of_search(predictor.options, form)
    name = Path(run).resolve().name
    additions = Additions(
        load_shortlist(Path(run), predictor.source, predictor.target),
        read_divisors(Path(run) / "weights.safetensors"),
    )
    with written_aside(path) as aside:
        made = aside
        match form:
            case "ctranslate2":
                _write_ctranslate2(Path(run), predictor, aside, precision)
            case "marian":
                _write_marian(Path(run), predictor, aside)
            case "bergamot":
                _write_bergamot(Path(run), predictor, aside)
            case "argos":
                languages = languages or _languages_of(predictor.recipe)
                made = _write_argos(Path(run), predictor, aside, precision, languages)
            case "html":
                assert precision != "bf16"
                made = aside / "page.html"
                write_text(made, offline_page(predictor, name, precision, additions))
            case "npm":
                assert precision != "bf16"
                made = aside / "model"
                made.write_bytes(model_file(predictor, name, precision, additions))
        made.rename(path)
    return path


def _warn_of_search(options: DecodingOptions, form: Format) -> None:
    """Log a warning for settings that the search of an exported model does not follow."""
    default, facts = DecodingOptions(), facts_of_options()
    ignored, instead = [], []
    for name, setting in not_followed(options, lambda facts: getattr(facts.exports, form)):
        values = getattr(facts[name].exports, form)
        other = values[-1] if isinstance(values, tuple) else getattr(default, name)
        ignored.append(f"{name} = {setting!r}")
        instead.append(f"{name} = {other!r}")
    if ignored:
        logger.warning(SEARCH_WARNING, form, ", ".join(ignored), ", ".join(instead))


def _languages_of(recipe: TranslationRecipe) -> tuple[str, str]:
    """Languages of a recipe with one pair.  Raises SettingError for another."""
    sources, targets = recipe.languages.sources, recipe.target_languages
    if len(sources) != 1 or len(targets) != 1:
        raise SettingError("--format argos needs both languages, such as --languages de-en")
    return sources[0], targets[0]


def export_refusals(predictor: Any, task: str) -> dict[Format, str]:
    """Reasons against each format of a run; "" where it can be written."""
    refusals: dict[Format, str] = {}
    for form in get_args(Format):
        try:
            _check_form(form, predictor, task)
            refusals[form] = ""
        except TransduceError as error:
            refusals[form] = str(error)
    return refusals


def _check_form(form: Format, predictor: Any, task: str) -> None:
    """Raises TransduceError, with all reasons, for a format that a run does not have."""
    if form == "onnx":
        check_onnx(predictor, task)
        return
    if not isinstance(predictor, Translator):
        raise RunError(f"--format {form} is for translation, not {task}")
    source, target = predictor.source, predictor.target
    recipe, config = predictor.recipe, predictor.recipe.model
    match form:
        case "ctranslate2":
            ctranslate2.check_ctranslate2_expressible(config)
        case "argos":
            ctranslate2.check_ctranslate2_expressible(config)
            argos.check_argos_expressible(source, target, recipe.target_languages)
        case "marian":
            check_expressible(config, source, target)
        case "bergamot":
            check_bergamot(config, source, target)
        case "html" | "npm":
            model_facts(predictor, "", "int8")


def _check_options(
    path: Path, precision: Precision, form: Format, languages: tuple[str, str] | None
) -> None:
    if form in ("marian", "onnx") and precision != "float32":
        raise SettingError(f"--format {form} holds float32, not {precision}; remove --precision")
    if form == "bergamot" and precision != "float32":
        raise SettingError("--format bergamot writes both float32 and int8; remove --precision")
    if form in WEB and precision == "bf16":
        raise SettingError(f"--format {form} has weights in int8 or float32, not bf16")
    if form != "argos" and languages is not None:
        raise SettingError(f"--languages is for --format argos, not {form}; remove it")
    if form == "argos":
        for code in languages or ():
            if not LANGUAGE_CODE.fullmatch(code):
                raise SettingError(f"{code!r} is not a code of a language, such as 'de' or 'pt-BR'")
    suffix = SUFFIXES.get(form, path.suffix)
    if path.suffix != suffix:
        raise SettingError(f"{path.name} must end in {suffix}; write {path.name}{suffix}")


def _write_ctranslate2(
    run: Path, translator: Translator, directory: Path, precision: Precision
) -> None:
    _write_model(translator, directory, precision)
    files = _write_tokenizers(translator, directory)
    write_text(directory / "README.md", _card(run, translator, files))


def _write_model(translator: Translator, directory: Path, precision: Precision) -> None:
    write_ctranslate2(
        translator.model,
        translator.recipe.model,
        directory,
        _names(translator.source),
        _names(translator.target),
        _positions(translator),
        precision,
        translator.source.ends_sources,
    )


def _write_argos(
    run: Path,
    translator: Translator,
    directory: Path,
    precision: Precision,
    languages: tuple[str, str],
) -> Path:
    model = directory / "model"
    model.mkdir()
    _write_model(translator, model, precision)
    readme = _head(run, "A package for Argos Translate and LibreTranslate") + ARGOS
    package = directory / f"package{SUFFIXES['argos']}"
    argos.write_package(package, model, translator.source, languages, readme)
    return package


def _write_marian(run: Path, translator: Translator, directory: Path) -> None:
    made = marian_directory(
        translator.model,
        translator.recipe.model,
        translator.source,
        translator.target,
        _search_of_transformers(translator.options),
        _positions(translator),
    )
    write_tensors(directory / "model.safetensors", made.tensors, {"format": "pt"})
    for name, content in made.files.items():
        (directory / name).write_bytes(content)
    readme = _head(run, "A Marian model for Hugging Face transformers") + MARIAN
    if (penalty := translator.options.length_penalty) not in DIVISORS:
        readme += OTHER_PENALTY.format(penalty)
    write_text(directory / "README.md", readme)


def _write_bergamot(run: Path, translator: Translator, directory: Path) -> None:
    source, options = translator.source, translator.options
    shortlist = load_shortlist(run, source, translator.target)
    search = {
        "beam-size": options.beam_size,
        "normalize": int(DIVISORS.get(options.length_penalty, 1.0)),
        "word-penalty": 0,
        "max-length-factor": max(options.max_length_ratio, 3.0),
    }
    weights = run / "weights.safetensors"
    multipliers = json.loads(read_weights_header(weights).texts.get(MULTIPLIERS, "{}"))
    files = bergamot_files(
        translator.model,
        translator.recipe.model,
        source,
        translator.target,
        search,
        shortlist and Lists(np.array(shortlist.rows()), np.array(shortlist.frequent)),
        Quantised(read_divisors(weights), multipliers),
    )
    for name, content in files.items():
        (directory / name).write_bytes(content)
    readme = _head(run, "A model for Marian and for Bergamot's engines") + BERGAMOT
    write_text(directory / "README.md", readme)


def _positions(translator: Translator) -> int:
    """Positions to write: enough for the longest source, and its output by the recipe's options."""
    max_source_length = translator.config.max_source_length
    outputs = translator.options.max_length_for(max_source_length)
    needed = max(max_source_length, min(outputs, MAX_POSITIONS - 1)) + 1
    return max(POSITIONS, 1 << (needed - 1).bit_length())


def _search_of_transformers(options: DecodingOptions) -> dict[str, Any]:
    """Settings of its beam search: scores divided by the length, or not at all."""
    early = {"first": True, "exact": "never", "present": False}
    return {
        "num_beams": options.beam_size,
        "early_stopping": early.get(options.stop, True),
        "length_penalty": DIVISORS.get(options.length_penalty, 1.0),
    }


def _head(run: Path, what: str) -> str:
    name = run.resolve().name
    version = __version__
    return f"# {name}\n\n{what}, exported from the run `{name}` by transduce {version}.\n\n"


def _names(tokenizer: Tokenizer) -> list[str]:
    """Names of the ids in other programs: pieces, or the number if another id has that name."""
    names: dict[str, None] = {}
    for i, piece in enumerate(tokenizer.tokens(range(tokenizer.size))):
        names[f"<id {i}>" if piece in names else piece] = None
    return list(names)


def _write_tokenizers(translator: Translator, directory: Path) -> Sequence[Path]:
    source, target = translator.source, translator.target
    named = {"source": source, "target": target}
    if source is target:
        named = {"": source}
    files = []
    for side, tokenizer in named.items():
        name = f"{side}_tokenizer{tokenizer.suffix}".lstrip("_")
        if is_spm := isinstance(tokenizer, SubwordTokenizer | MarianTokenizer):
            name = f"{side}.spm" if side else "sentencepiece.model"
        (directory / name).write_bytes(pieces_file(tokenizer) if is_spm else tokenizer.to_bytes())
        files.append(directory / name)
    return files


def _card(run: Path, translator: Translator, files: Sequence[Path]) -> str:
    names = " and ".join(f"`{file.name}`" for file in files)
    page = _head(run, "A CTranslate2 model")
    sides = (translator.source, translator.target)
    if not all(isinstance(side, SubwordTokenizer) for side in sides):
        return (
            f"{page}{names}: for `transduce.text.load_tokenizer`, which cuts texts into tokens.\n"
        )
    beam = translator.options.beam_size
    page += f"{names}: SentencePiece.\n\n"
    page += SNIPPET.format(source=files[0].name, target=files[-1].name, beam_size=beam)
    normalizer = translator.source.normalizer
    if normalizer.lowercase:
        page += "\nWrite texts in lower case before that.\n"
    if normalizer.normalization != "none":
        page += f"\nBring texts into Unicode form {normalizer.normalization.upper()} before that.\n"
    return page


NO_LICENCE = re.compile(r"^# license: .*$", re.MULTILINE)
LICENCE = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")


def publish_run(
    run: str | os.PathLike[str], directory: str | os.PathLike[str], licence: str = ""
) -> Path:
    """Write `directory`: model card, weights, tokenizers and recipe of a run, for publication.

    The directory is itself a run directory, without checkpoints and without paths of this machine.
    licence: identifier for the card's metadata, such as "apache-2.0".  Raises RunError if the
    run or the directory cannot be used, SettingError for a licence that is not an identifier.
    """
    source, path = Path(run), Path(directory)
    if licence and not LICENCE.fullmatch(licence):
        raise SettingError(
            f"licence {licence!r} is not an identifier; write one of the Hub's, such as apache-2.0"
        )
    if path.exists():
        raise RunError(f"{path} exists already; give another DIRECTORY")
    recipe = read_recipe(source)
    if not (source / "weights.safetensors").is_file():
        raise RunError(f"{source} has no weights.safetensors; finish its training first")
    with written_aside(path) as aside:
        copy_run(source, aside, without=("recipe.toml", "README.md"))
        write_text(aside / "recipe.toml", to_toml(without_private_paths(to_dict(recipe))))
        write_text(aside / "README.md", _published_card(source, licence))
        aside.rename(path)
    return path


def without_private_paths(value: Any) -> Any:
    """Settings in which paths outside the recipe's directory are names of files alone."""
    if isinstance(value, dict):
        return {
            key: without_private_paths(setting) for key, setting in value.items() if key != "root"
        }
    if isinstance(value, list | tuple):
        return [without_private_paths(setting) for setting in value]
    if isinstance(value, str):
        parts = PurePath(value).parts
        if PurePath(value).is_absolute() or parts[:1] in (("..",), ("~",)):
            return parts[-1]
    return value


def _published_card(source: Path, licence: str) -> str:
    try:
        card = (source / "README.md").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise RunError(f"{source} has no README.md; write its model card first") from None
    return NO_LICENCE.sub(f"license: {licence}", card, count=1) if licence else card
