"""The search finds what brute force found, on a whole tiny model with known weights."""

import pytest
import torch

from helpers.golden import golden_encoder_decoder, read_golden
from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.decoding.search import SearchRequest, search
from transduce.nn.stack_configs import NormOrder
from transduce.sequence import Padded

PENALTIES = {"sum_of_log_probs": "none", "mean_log_prob": "mean"}


def decode(norm_order: NormOrder, sentences: int, options: DecodingOptions) -> list[Hypothesis]:
    """Of the golden source, standing `sentences` times in its batch: the last one's."""
    golden = read_golden("encoder_decoder")
    model = golden_encoder_decoder(norm_order)
    with torch.no_grad():
        state = model.start(Padded.unpadded(torch.tensor([golden["source"]] * sentences)))
    prefix = Padded.unpadded(torch.full((sentences, 1), golden["bos"]))
    result = search(
        SearchRequest(
            model.step,
            state,
            prefix,
            torch.full((sentences,), 3),  # and the end of sentence: four tokens
            golden["eos"],
            [golden["bos"]],
            options,
        )
    )
    return result[-1]


@pytest.mark.parametrize("norm_order", ["pre", "post"])
@pytest.mark.parametrize("figures", list(PENALTIES))
@pytest.mark.parametrize("sentences", [1, 3])
def test_finds_the_list_of_brute_force(norm_order: NormOrder, figures: str, sentences: int) -> None:
    golden = read_golden("encoder_decoder")
    best = golden[norm_order]["best_up_to_4_tokens"][figures]
    options = DecodingOptions(
        beam_size=1000, n_best=len(best), length_penalty=PENALTIES[figures], stop="exact"
    )
    result = decode(norm_order, sentences, options)
    assert [[*hypothesis.tokens, golden["eos"]] for hypothesis in result] == [
        known["tokens"] for known in best
    ]
    for hypothesis, known in zip(result, best, strict=True):
        assert hypothesis.finished
        assert hypothesis.log_prob == pytest.approx(known["log_prob"], abs=1e-8)
        assert hypothesis.score == pytest.approx(known["score"], abs=1e-8)


@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_a_narrow_beam_finds_the_best(norm_order: NormOrder) -> None:
    golden = read_golden("encoder_decoder")
    (best,) = decode(norm_order, 1, DecodingOptions(length_penalty="mean", stop="exact"))
    known = golden[norm_order]["best_up_to_4_tokens"]["mean_log_prob"][0]
    assert [*best.tokens, golden["eos"]] == known["tokens"]
    assert best.score == pytest.approx(known["score"], abs=1e-8)


@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_log_prob_is_that_of_forced_scoring(norm_order: NormOrder) -> None:
    golden = read_golden("encoder_decoder")
    model = golden_encoder_decoder(norm_order)
    for hypothesis in decode(norm_order, 1, DecodingOptions(n_best=5)):
        target = [golden["bos"], *hypothesis.tokens, golden["eos"]]
        with torch.no_grad():
            logits = model(
                Padded.unpadded(torch.tensor([golden["source"]])),
                Padded.unpadded(torch.tensor([target[:-1]])),
            )
        log_probs = logits[0].log_softmax(1).gather(1, torch.tensor(target[1:])[:, None])
        assert hypothesis.log_prob == pytest.approx(log_probs.sum().item(), abs=1e-10)
