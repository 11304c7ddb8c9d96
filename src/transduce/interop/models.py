"""Table of importers, by the `model_type` of `config.json`.

Those of other packages are the entry points `transduce.importers`.
"""

from collections.abc import Callable
from pathlib import Path

from transduce.errors import DataError
from transduce.interop.bart import import_bart, import_t5
from transduce.interop.bert import import_bert
from transduce.interop.ctranslate2_import import import_ctranslate2
from transduce.interop.gpt2 import import_gpt2
from transduce.interop.marian_import import import_marian, import_marian_model
from transduce.interop.model_names import marian_model_file, model_folder
from transduce.interop.opennmt import import_opennmt
from transduce.interop.read import Config, ImportedModel, read_config
from transduce.interop.vit import import_vit
from transduce.interop.whisper import import_whisper
from transduce.support.open_table import OpenTable

Importer = Callable[[Path, Config], ImportedModel]
IMPORTER_ROWS: dict[str, Importer] = {
    "bart": import_bart,
    "bert": import_bert,
    "roberta": import_bert,
    "distilbert": import_bert,
    "gpt2": import_gpt2,
    "m2m_100": import_bart,
    "marian": import_marian,
    "mbart": import_bart,
    "mt5": import_t5,
    "t5": import_t5,
    "vit": import_vit,
    "whisper": import_whisper,
}
IMPORTERS: OpenTable[Importer] = OpenTable("transduce.importers", IMPORTER_ROWS)


def import_directory(directory: Path) -> ImportedModel:
    """Import the model of a directory of Hugging Face, CTranslate2 or Marian, or of a checkpoint of
    OpenNMT-py.  Raises DataError."""
    if directory.suffix == ".pt" and directory.is_file():
        return import_opennmt(directory)
    if (folder := model_folder(directory)) is not None:
        return import_ctranslate2(folder)
    if not (directory / "config.json").is_file() and (file := marian_model_file(directory)):
        return import_marian_model(directory, file)
    config = read_config(directory)
    kind = config.values.get("model_type")
    if not isinstance(kind, str) or kind not in IMPORTERS:
        raise DataError(
            f"{config.path}: model_type = {kind!r} is not supported; supported types are "
            f"{', '.join(IMPORTERS)}"
        )
    return IMPORTERS[kind](directory, config)
