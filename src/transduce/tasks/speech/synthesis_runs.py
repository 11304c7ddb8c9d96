"""Runs of speech synthesis: preparation for training, loading."""

from __future__ import annotations

import functools
from pathlib import Path

from transduce.models.synthesis import SynthesisConfig
from transduce.support.work import available_cores
from transduce.tasks.common import cache_of, with_weights
from transduce.tasks.speech.duration_training import DurationTraining
from transduce.tasks.speech.normalisation import load_normalisation, normalisation_for
from transduce.tasks.speech.pronunciation import load_pronouncer
from transduce.tasks.speech.recordings import recordings_to_train
from transduce.tasks.speech.speakers import fit_speakers, load_speakers, speakers_for
from transduce.tasks.speech.synthesis import SynthesisTraining
from transduce.tasks.speech.synthesis_recipe import SynthesisRecipe
from transduce.tasks.speech.synthesiser import Synthesiser
from transduce.tasks.text_batches import tokenizer_for
from transduce.tasks.text_inputs import tokenizer_of
from transduce.tasks.validation import warn_of_few


def prepare_synthesis(recipe: SynthesisRecipe, run: Path) -> SynthesisTraining:
    """Data, model and loss of a recipe, for training into the directory `run`."""
    cache = cache_of(run)
    processes = recipe.training.threads or available_cores()
    pronouncer = load_pronouncer(recipe.text.pronounce, recipe.training.device)
    data = recordings_to_train(recipe.data, recipe.audio, cache, processes)
    normalisation = normalisation_for(recipe.audio, recipe.fine_tune, run, data["train"])
    speakers = speakers_for(recipe.fine_tune, run, data["train"])
    texts = data["train"].texts
    symbols = texts if pronouncer is None else pronouncer.pronounce(texts)
    tokenizer = tokenizer_for(recipe.text, recipe.fine_tune, run, symbols)
    synthesiser = Synthesiser(recipe, tokenizer, normalisation, cache, pronouncer, speakers)
    warn_of_few(recipe.data, len(data["valid"]), "recordings")
    by_attention = isinstance(recipe.model, SynthesisConfig)
    task = (SynthesisTraining if by_attention else DurationTraining)(synthesiser, data)
    if recipe.fine_tune:
        task.adapt = fit_speakers(speakers, load_speakers(Path(recipe.fine_tune.run)))
    return task


def load_synthesis(recipe: SynthesisRecipe, run: Path, device: str) -> Synthesiser:
    """Trained model of a run directory.  Raises RunError if a file is missing or damaged."""
    tokenizer, cache = tokenizer_of(run), cache_of(run)
    normalisation = load_normalisation(recipe.audio, run)
    pronouncer = load_pronouncer(recipe.text.pronounce, device)
    parts = (tokenizer, normalisation, cache, pronouncer, load_speakers(run))
    return with_weights(functools.partial(Synthesiser, recipe, *parts), run, device)
