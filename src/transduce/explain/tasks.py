"""Explanations of the tasks on texts, and facts of a predictor for a page that computes its
answers itself."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from transduce.decoding.options import DecodingOptions, facts_of_options, not_followed
from transduce.decoding.step_search import padded_ids
from transduce.errors import SettingError
from transduce.explain.explanation import Explanation
from transduce.explain.live import (
    IN_MODELS,
    MOST_PARAMETERS,
    LiveModel,
    check_settings,
    stack_facts,
)
from transduce.explain.page_tokenizers import tokenizer_facts
from transduce.explain.parts import Feature, Hidden, Span
from transduce.explain.recorded_pass import (
    Names,
    OutputPass,
    Pass,
    SearchWatch,
    encoder_pass,
    fitting,
    guesses_of,
    label_guesses,
    label_layers,
    layer_guesses,
    logger,
    steps_of,
)
from transduce.models.decoder_only import DecoderOnly
from transduce.models.encoder_only import EncoderOnly
from transduce.nn.convolution import TextCnnEncoder
from transduce.nn.heads.label import LabelHead
from transduce.sequence import Padded
from transduce.settings.sections import to_dict
from transduce.tasks.language_model.generator import Continuation
from transduce.tasks.language_model.recommendation import Recommender
from transduce.tasks.language_model.task import DocumentModel
from transduce.tasks.text_encoder.mask_filler import MaskFiller
from transduce.tasks.text_encoder.predictor import Answerer, TextClassifier, TextEmbedder
from transduce.tasks.text_inputs import Row, encode_counting_cuts, mask_id, with_special_tokens
from transduce.tasks.training import rows_padded
from transduce.tasks.translation.text_translator import SourceText
from transduce.tasks.translation.translator import Translator
from transduce.text import BOS, EOS, PAD, UNK, Tokenizer, token_names


def live_translation(translator: Any, name: str) -> LiveModel:
    """The model of a translator.  name: of its run.

    Raises SettingError, with the setting, for a model that the page cannot compute.
    """
    tokenizers = [translator.source]
    if translator.target is not translator.source:
        tokenizers.append(translator.target)
    model = live_model(
        translator,
        name,
        ("encoder", "decoder"),
        tokenizers,
        decoding=_decoding(translator.options),
        max_source_length=translator.config.max_source_length,
        max_target_length=translator.config.max_target_length,
    )
    shortlist = translator.steps.shortlist
    if not translator.options.shortlist or shortlist is None:
        return model
    dtype = torch.int16 if shortlist.size <= 1 << 15 else torch.int32
    parts = {"likely": shortlist.rows(), "frequent": shortlist.frequent.tolist()}
    tables = {f"shortlist.{name}": torch.tensor(part, dtype=dtype) for name, part in parts.items()}
    return replace(
        model, facts={**model.facts, "shortlist": {"joint": shortlist.joint}}, others=tables
    )


def live_generation(generator: Any, name: str) -> LiveModel:
    """The model of a generator.  As `live_translation`."""
    return live_model(
        generator,
        name,
        ("decoder",),
        [generator.tokenizer],
        decoding=_decoding(generator.options),
        window=generator.window,
        roles=generator.recipe.marks or None,
    )


def live_recommendation(recommender: Any, name: str) -> LiveModel:
    """The model of a recommender.  As `live_translation`."""
    recipe = recommender.recipe
    return live_model(
        recommender,
        name,
        ("decoder",),
        [recommender.tokenizer],
        window=recipe.data.block,
        at=recipe.evaluation.at,
    )


def live_text_encoder(predictor: Any, name: str) -> LiveModel:
    """The model of a classifier, an embedder or a filler of masks.  As `live_translation`."""
    recipe = predictor.recipe
    return live_encoder(
        predictor,
        name,
        [predictor.tokenizer],
        pooler_activation=recipe.model.pooler_activation,
        max_length=recipe.text.max_length,
    )


def live_encoder(
    predictor: Any, name: str, tokenizers: Sequence[Tokenizer], **facts: Any
) -> LiveModel:
    """The model of an encoder of texts or images.  tokenizers, facts: as of `live_model`."""
    recipe = predictor.recipe
    return live_model(
        predictor,
        name,
        ("encoder",),
        tokenizers,
        labels=list(getattr(predictor, "labels", ())),
        pooling=recipe.model.pooling,
        normalize=getattr(getattr(recipe, "evaluation", None), "normalize", False),
        **facts,
    )


def live_model(
    predictor: Any, name: str, sides: Sequence[str], tokenizers: Sequence[Tokenizer], **facts: Any
) -> LiveModel:
    """Facts of a predictor and of its stacks `sides`, and its network.  name: of the run.

    tokenizers: of the source and the target.  facts: further ones, of the task.  Raises
    SettingError, with the setting, for a model that the page cannot compute.
    """
    network, recipe = predictor.model, predictor.recipe
    config = recipe.model
    parameters = {p.data_ptr(): p.numel() for p in network.parameters()}
    count = sum(parameters.values())
    if count > MOST_PARAMETERS:
        raise SettingError(
            f"a live page holds all weights; this model has {count:,} parameters, more "
            f"than {MOST_PARAMETERS:,}; leave out --live"
        )
    check_settings(config, "model", IN_MODELS)
    looks, scaled = "encoder" in sides, getattr(config, "scale_embeddings", False)
    stacks = {
        side: stack_facts(side, getattr(config, side), config.d_model, looks) for side in sides
    }
    return LiveModel(
        {
            "task": recipe.task,
            "run": name,
            "inputs": list(predictor.inputs),
            "parameters": count,
            "d_model": config.d_model,
            "scale": math.sqrt(config.d_model) if scaled else 1.0,
            "stacks": stacks,
            "tokenizers": [tokenizer_facts(tokenizer) for tokenizer in tokenizers],
            **facts,
        },
        network,
    )


def _decoding(options: DecodingOptions) -> dict[str, Any]:
    """Options of decoding.  Raises SettingError for one that the page does not follow."""
    for name, setting in not_followed(options, lambda facts: facts.page):
        raise SettingError(
            f"a live page does not follow decoding.{name} = {setting!r}; set it to "
            f"{getattr(DecodingOptions(), name)!r}, or leave out --live"
        )
    facts = facts_of_options()
    return {name: setting for name, setting in to_dict(options).items() if facts[name].page}


GENERATED_RIVALS = 50
"""Tokens shown for a step of a language model, for the temperature."""
MAX_STEPS = 32
MAX_PROMPT = 40
"""Maximum tokens shown of a continuation, and of its prompt."""


def explain_generation(
    generator: DocumentModel[Any], parts: tuple[str, ...], first: int = 0
) -> Explanation:
    """A prompt or a history, its continuation, and all between."""
    (prompt,) = generator.read(list(parts), first)
    options = generator.options
    names = generator.names
    text = generator.continuation_text(prompt, options)
    pieces = list(generator.pieces(prompt, options, 0, first))
    request = generator.backend.step_search("an explanation").request(pieces, options)
    watch = SearchWatch(request, names)
    with torch.inference_mode():
        tree = watch.tree()
    written = [*watch.best, *([EOS] if watch.finished else [])]
    if len(written) > MAX_STEPS:
        logger.warning("the output has %d tokens; %d are explained", len(written), MAX_STEPS)
        written = written[:MAX_STEPS]
    answer = Continuation(text.exact(watch.best)).text
    bare = Explanation(
        generator.recipe.task, "", {generator.inputs[0]: parts[0]}, answer, search=tree
    )
    return _explain_alone(bare, generator.model, prompt, written, generator.window, names)


def explain_recommendation(
    recommender: Recommender, parts: tuple[str, ...], first: int = 0
) -> Explanation:
    """A history of items, and the likeliest next items."""
    best = recommender.predict([parts], first=first)[0]
    ids = [i for i in recommender.tokenizer.encode(parts[0]) if i != UNK]
    bare = Explanation("recommendation", "", {"history": parts[0]}, best.text, labels=best.items)
    names = token_names(recommender.tokenizer)
    block = recommender.recipe.data.block
    return _explain_alone(bare, recommender.model, [BOS, *ids], [], block, names)


def _explain_alone(
    bare: Explanation,
    model: DecoderOnly,
    prompt: Sequence[int],
    written: Sequence[int],
    window: int,
    names: Names,
) -> Explanation:
    """A decoder-only model's pass over a prompt and the continuation `written`."""
    row = [*prompt, *written[:-1]][-window:]
    first = max(0, len(row) - MAX_STEPS - MAX_PROMPT)
    if first:
        logger.warning("the input has %d tokens; the last of them are shown", len(prompt))
    read, next_ones = names(row[first:]), names([*row[first + 1 :], *written[-1:]])
    batch = Padded.from_rows([row], PAD).to(model.head.weight.device)
    sequences = {"decoder": ("read", "read")}
    recorded = Pass(model, lambda: model(batch), sequences, {"read": read}, first)
    probabilities = recorded.output[0].float().softmax(-1).cpu()
    begin = len(row) - max(len(written), 1)
    steps = steps_of(
        names(row[begin:]) if written else [],
        names(written),
        written,
        probabilities[begin:][: len(written)],
        names,
        GENERATED_RIVALS,
    )
    return replace(
        recorded.laid_out(bare, model.head.weight.shape[1]),
        sequences={"read": read, "written": next_ones},
        steps=steps,
        first_step=begin - first,
        credit=recorded.credit(enumerate(written, begin), names),
        layers=layer_guesses(recorded.lens("decoder", model.head), names),
        layers_of="read",
    )


MAX_HIDDEN = 64
"""Tokens that are hidden in turn."""
MAX_FEATURES = 16
HIDDEN_GUESSES = 5


def explain_classification(
    classifier: TextClassifier, parts: tuple[str, ...], first: int = 0
) -> Explanation:
    """A text, its label, and the label without each of its tokens."""
    prediction = classifier.predict([parts], first=first)[0]
    inputs = dict(zip(classifier.inputs, parts, strict=True))
    bare = Explanation("classification", "", inputs, prediction.text)
    if not any(part.strip() for part in parts):
        return bare
    model = classifier.model
    row, batch = _row(classifier, parts)
    recorded, bare = _read(bare, model, batch, classifier.tokenizer, row.ids)
    assert isinstance(model.head, LabelHead)
    scores = label_layers(recorded, model.head, classifier.labels)
    labels = label_guesses(recorded.output[0].float().softmax(-1).cpu(), classifier.labels)
    hidden = _left_out(model, row, classifier)
    features = _features(recorded, model, batch)
    credit = recorded.credit_of_label(classifier.labels)
    return replace(
        bare, labels=labels, layers=scores, hidden=hidden, features=features, credit=credit
    )


def explain_masked_language_model(
    filler: MaskFiller, parts: tuple[str, ...], first: int = 0
) -> Explanation:
    """A text with its masks filled in, and the guesses where each token is hidden."""
    filled = filler.predict([parts], first=first)[0]
    bare = Explanation("masked-language-model", "", {"text": parts[0]}, filled.text)
    if not parts[0].strip():
        return bare
    model, tokenizer = filler.model, filler.tokenizer
    row = with_special_tokens(filler.ids(parts[0]), None, filler.recipe.text.max_length)
    ids = fitting(row.ids, "text")
    segmented = filler.recipe.model.segments
    batch = rows_padded([Row(ids, [0] * len(ids))], segmented).to(filler.device)
    recorded, bare = _read(bare, model, batch, tokenizer, ids)
    names = token_names(tokenizer, ["<mask>"])
    lens = layer_guesses(recorded.lens("encoder", model.head), names)
    masks = [i for i, token in enumerate(ids) if token == mask_id(tokenizer)]
    filled_in = [candidates[0].id for candidates in filled.candidates]
    credit = recorded.credit(zip(masks, filled_in, strict=False), names)
    places = [i for i, token in enumerate(ids) if token not in (BOS, EOS)][:MAX_HIDDEN]
    rows = []
    for position in places:
        changed = [*ids[:position], mask_id(tokenizer), *ids[position + 1 :]]
        rows.append(Row(changed, [0] * len(ids)))
    hidden = []
    if rows:
        with torch.inference_mode():
            encoded = model.encode(rows_padded(rows, segmented).to(filler.device)).values
            at = encoded[torch.arange(len(places)), torch.tensor(places)]
            probabilities = model.head(at).float().softmax(-1).cpu()
        for position, distribution in zip(places, probabilities, strict=True):
            guesses = guesses_of(distribution, names, HIDDEN_GUESSES)
            original = (names([ids[position]])[0], float(distribution[ids[position]]))
            if original[0] not in [name for name, _ in guesses] and ids[position] != mask_id(
                tokenizer
            ):
                guesses = (*guesses, original)
            hidden.append(Hidden(position, guesses))
    return replace(bare, layers=lens, layers_of="text", hidden=tuple(hidden), credit=credit)


def explain_question_answering(
    answerer: Answerer, parts: tuple[str, ...], first: int = 0
) -> Explanation:
    """A question and its passage: start and end of the answer in the window that holds it."""
    prediction = answerer.predict([parts], first=first)[0]
    inputs = dict(zip(answerer.inputs, parts, strict=True))
    bare = Explanation("question-answering", "", inputs, prediction.text)
    (reading,) = answerer.read([parts])
    if not reading.windows:
        return bare
    tokens = None
    if prediction.start is not None and prediction.end is not None:
        tokens = reading.tokens_of(prediction.start, prediction.end)
    window = reading.windows[0]
    if tokens is not None:
        holding = (w for w in reading.windows if w.begin <= tokens[0] and tokens[1] < w.end)
        window = next(holding, window)
    batch = rows_padded([window.row], answerer.config.segments).to(answerer.device)
    recorded, bare = _read(bare, answerer.model, batch, answerer.tokenizer, window.row.ids)
    start, end = recorded.output[0].float().softmax(0).cpu().unbind(1)
    answer = None
    if tokens is not None:
        shift = window.first - window.begin
        answer = (tokens[0] + shift, tokens[1] + shift)
    names = token_names(answerer.tokenizer)
    credit = recorded.credit(
        enumerate(answer or ()),
        lambda at: [f"{i} {names([window.row.ids[i]])[0]}" for i in at],
        lambda scores: scores.transpose(1, 2),
    )
    span = Span(tuple(start.tolist()), tuple(end.tolist()), answer)
    return replace(bare, span=span, credit=credit)


def explain_embedding(
    embedder: TextEmbedder, parts: tuple[str, ...], first: int = 0
) -> Explanation:
    """A text and its vector."""
    prediction = embedder.predict([parts], first=first)[0]
    bare = Explanation("embedding", "", {"text": parts[0]}, prediction.text)
    if not parts[0].strip():
        return bare
    row, batch = _row(embedder, parts)
    _, bare = _read(bare, embedder.model, batch, embedder.tokenizer, row.ids)
    return replace(bare, vectors={"embedding": np.array(prediction.embedding, np.float32)})


def _row(predictor: TextClassifier | TextEmbedder, parts: tuple[str, ...]) -> tuple[Row, Padded]:
    """An input as the model reads it, and a batch of it alone."""
    max_length = predictor.recipe.text.max_length
    ((row,), _) = encode_counting_cuts(predictor.tokenizer, [parts], max_length)
    row = Row(fitting(row.ids, "text"), fitting(row.segments, "text"))
    return row, rows_padded([row], predictor.recipe.model.segments).to(predictor.device)


def _read(
    bare: Explanation, model: nn.Module, batch: Padded, tokenizer: Tokenizer, ids: Any
) -> tuple[Pass, Explanation]:
    """A pass over a row of text, and the explanation with all that every encoder has."""
    tokens = token_names(tokenizer, ["<mask>"])([int(i) for i in ids])
    return encoder_pass(bare, model, batch, "text", tokens)


@torch.inference_mode()
def _left_out(model: EncoderOnly, row: Row, classifier: TextClassifier) -> tuple[Hidden, ...]:
    places = [i for i, token in enumerate(row.ids) if token not in (BOS, EOS)][:MAX_HIDDEN]
    if len(places) < 2:
        return ()
    rows = [
        Row([*row.ids[:i], *row.ids[i + 1 :]], [*row.segments[:i], *row.segments[i + 1 :]])
        for i in places
    ]
    batch = rows_padded(rows, classifier.recipe.model.segments).to(classifier.device)
    probabilities = model(batch).float().softmax(-1).cpu()
    return tuple(
        Hidden(position, label_guesses(scores, classifier.labels))
        for position, scores in zip(places, probabilities, strict=True)
    )


@torch.inference_mode()
def _features(recorded: Pass, model: EncoderOnly, batch: Padded) -> tuple[Feature, ...]:
    """The windows of the pooled features with the largest part in the predicted label."""
    encoder, head = model.encoder, model.head
    if not isinstance(encoder, TextCnnEncoder) or not isinstance(head, LabelHead):
        return ()
    if head.pooling != "max" or head.hidden is not None:
        return ()
    values, places = model.encode(batch).values[0].float().max(0)
    t = batch.real.shape[1]
    widths = [w.kernel_size[0] for w in encoder.windows for _ in range(w.out_channels)]  # type: ignore[index, arg-type]
    weights = head.output.weight[int(recorded.output[0].argmax())].float()
    order = (values * weights).abs().argsort(descending=True)[:MAX_FEATURES].tolist()
    features = []
    for i in order:
        begin = int(places[i]) - widths[i] // 2
        window = max(begin, 0), min(begin + widths[i], t)
        features.append(Feature(*window, float(values[i]), float(weights[i])))
    return tuple(features)


def explain_translation(
    translator: Translator, parts: tuple[str, ...], first: int = 0
) -> Explanation:
    """A source text, its translation, and all between.  Of a text in pieces, the first."""
    translator.check_alone()
    translation = translator.predict([parts], first=first)[0]
    bare = Explanation("translation", "", {"source": parts[0]}, translation.text)
    if not translation.candidates:
        return bare
    pieces = translator.source_pieces(parts[0])
    if not pieces:
        return bare
    if len(pieces) > 1:
        logger.warning("the text is translated in %d pieces; the first is explained", len(pieces))
    options = translator.options
    (source,) = translator.read(list(parts), first)
    assert isinstance(source, SourceText), "translated above"
    piece = next(translator.pieces(source, options, 0, first))
    request = translator.steps.request([piece], options)
    names = token_names(translator.target)
    watch = SearchWatch(
        request, lambda ids: names(request.original(list(ids))), piece.constraints.min_length
    )
    tree = watch.tree()
    batch = padded_ids([piece.source]).to(translator.device)
    written = [*piece.prompt[1:], *translation.candidates[0].parts[0]]
    shown = token_names(translator.source)(piece.source)
    pair = OutputPass(translator.model, batch, ("source", shown), written, names)
    return pair.explain(replace(bare, search=tree))
