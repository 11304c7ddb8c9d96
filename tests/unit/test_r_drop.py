"""R-Drop: two passes that are asked to agree."""

import itertools
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.tiny_run import reversal_pairs, tiny_task, write_tsv
from transduce.data.batches import DataState
from transduce.data.documents import EncodedDocuments, coding_of_texts
from transduce.data.packing import PackedBatches
from transduce.data.ragged_rows import Side
from transduce.errors import SettingError
from transduce.models.decoder_only import DecoderOnlyConfig, build_decoder_only
from transduce.sequence import Padded
from transduce.tasks import TASKS
from transduce.tasks.language_model.task import packed_loss
from transduce.tasks.translation.training import pair_loss
from transduce.text import CharactersConfig, train_tokenizer
from transduce.training import loss as module
from transduce.training.loss import cross_entropy, r_drop_cross_entropy, r_drop_of_scores, twice


def parts(n: int, m: int = 8, v: int = 23) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden vectors of two passes, weight, targets and bias."""
    torch.manual_seed(n)
    hidden = torch.randn(2 * n, m, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(v, m, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(v, dtype=torch.float64, requires_grad=True)
    return hidden, weight, torch.randint(v, (n,)), bias


def plain(logits: Tensor, targets: Tensor, alpha: float, smoothing: float) -> Tensor:
    """The paper's loss, halved, as PyTorch's parts spell it."""
    both = targets.repeat(2)
    loss = F.cross_entropy(logits, both, reduction="sum", label_smoothing=smoothing)
    p, q = logits.log_softmax(-1).chunk(2)
    kl = F.kl_div(p, q, log_target=True, reduction="sum")
    kl = (kl + F.kl_div(q, p, log_target=True, reduction="sum")) / 2
    return (loss + alpha * kl) / 2


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("alpha", [0.5, 5.0])
@pytest.mark.parametrize("elements", [1, 1 << 20], ids=["chunks", "at once"])
@pytest.mark.parametrize("with_bias", [False, True])
def test_equals_plain_autograd(
    smoothing: float,
    alpha: float,
    elements: int,
    with_bias: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_DIVERGENCE_CHUNK_ELEMENTS", {"cpu": elements})
    hidden, weight, targets, bias = parts(75)  # a chunk has 32 or more
    given = [hidden, weight, bias] if with_bias else [hidden, weight]
    found = r_drop_cross_entropy(
        hidden, weight, targets, alpha, smoothing, bias if with_bias else None
    )
    logits = hidden @ weight.T + (bias if with_bias else 0)
    wanted = plain(logits, targets, alpha, smoothing)
    torch.testing.assert_close(found.total, wanted, rtol=1e-12, atol=0)
    nll = F.cross_entropy(logits, targets.repeat(2), reduction="sum") / 2
    torch.testing.assert_close(found.nll, nll, rtol=1e-12, atol=0)
    assert found.tokens == 75
    ours = torch.autograd.grad(3 * found.total, given)
    theirs = torch.autograd.grad(3 * wanted, given)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_gradcheck() -> None:
    hidden, weight, targets, _ = parts(4, 3, 7)
    assert torch.autograd.gradcheck(
        lambda h, w: r_drop_cross_entropy(h, w, targets, 5.0, 0.1).total, (hidden, weight)
    )


def test_equal_passes_lose_what_one_does() -> None:
    hidden, weight, targets, _ = parts(20)
    same = hidden[:20].repeat(2, 1)
    one = cross_entropy(same[:20], weight, targets, 0.1)
    two = r_drop_cross_entropy(same, weight, targets, 5.0, 0.1)
    torch.testing.assert_close(two.total, one.total)
    torch.testing.assert_close(two.nll, one.nll)
    (a,) = torch.autograd.grad(one.total, weight)
    (b,) = torch.autograd.grad(two.total, weight)
    torch.testing.assert_close(a, b)


def test_labels_lose_alike() -> None:
    hidden, weight, targets, _ = parts(9)
    found = r_drop_of_scores(hidden @ weight.T, targets, 2.0, 0.1)
    wanted = r_drop_cross_entropy(hidden, weight, targets, 2.0, 0.1)
    torch.testing.assert_close(found.total.double(), wanted.total, rtol=1e-5, atol=0)
    torch.testing.assert_close(found.nll.double(), wanted.nll, rtol=1e-5, atol=0)
    assert found.tokens == wanted.tokens == 9
    (a,) = torch.autograd.grad(found.total, weight)
    (b,) = torch.autograd.grad(wanted.total, weight)
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_bfloat16_is_near_and_weights_that_are_frozen_get_no_gradient() -> None:
    hidden, weight, targets, _ = (part.detach() for part in parts(100))
    hidden, weight = hidden.float().requires_grad_(), weight.float()
    exact = r_drop_cross_entropy(hidden, weight, targets, 5.0)
    rough = r_drop_cross_entropy(hidden.bfloat16(), weight, targets, 5.0)
    assert rough.total.dtype == torch.float32
    assert rough.total.item() == pytest.approx(exact.total.item(), rel=0.02)
    (gradient,) = torch.autograd.grad(rough.total, hidden)
    assert gradient.isfinite().all()


def test_large_logits_stay_finite() -> None:
    hidden = torch.tensor([[1e4], [-1e4], [1e4], [1e4]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0], [0.0]], requires_grad=True)
    sums = r_drop_cross_entropy(hidden, weight, torch.tensor([0, 1]), 5.0)
    assert sums.total.isfinite()
    (gradient,) = torch.autograd.grad(sums.total, hidden)
    assert gradient.isfinite().all()


def test_translation_without_dropout_loses_what_it_does_without_r_drop(tmp_path: Path) -> None:
    data = write_tsv(tmp_path / "a.tsv", reversal_pairs(60))
    dropout = ("model.encoder.dropout=0.3", "model.decoder.dropout=0.3")
    task = tiny_task(data, tmp_path, "training.r_drop=5", "training.batch_tokens=64", *dropout)
    for batch, _ in itertools.islice(task.batches.iterate(DataState()), 4):
        task.model.eval()
        once, two = pair_loss(task.model, batch, 0.1), task.loss(batch)
        torch.testing.assert_close(two.total, once.total)
        torch.testing.assert_close(two.nll, once.nll)
        assert two.tokens == once.tokens == batch.target_tokens
        task.model.train()
        state = torch.get_rng_state()
        apart = task.loss(batch).total
        torch.set_rng_state(state)
        together = pair_loss(task.model, batch, 0.1, 1e-9).total
        assert apart > together, "two passes differ"


def test_language_model_without_dropout_loses_what_it_does_without_r_drop() -> None:
    tokenizer = train_tokenizer(CharactersConfig(), ["abcdefgh"])
    torch.manual_seed(1)
    model = build_decoder_only(DecoderOnlyConfig(d_model=16), tokenizer.size).eval()
    coding = coding_of_texts(Side(tokenizer.encode_batch, tokenizer.size))
    data = EncodedDocuments.of_rows(*coding.encode(["abc", "hgfedcb", "a"]))
    (batch,) = PackedBatches(data, 16, 32, 0).in_order()
    once, two = packed_loss(model, batch, 0.1), packed_loss(model, batch, 0.1, 5.0)
    torch.testing.assert_close(two.total, once.total)
    torch.testing.assert_close(two.nll, once.nll)
    assert two.tokens == once.tokens


def test_tasks_that_do_not_know_it_say_so() -> None:
    settings = {"task": "question-answering", "training": {"r_drop": 5.0}}
    with pytest.raises(SettingError, match=r"training\.r_drop is not a setting"):
        TASKS["question-answering"].recipe.parse(settings, "recipe")


def test_twice_is_each_row_and_then_each_again() -> None:
    batch = Padded.from_rows([[5, 6, 7], [8]])
    two = twice(batch)
    assert two.values.tolist() == [[5, 6, 7], [8, 0, 0]] * 2
    assert two.real.tolist() == batch.real.tolist() * 2
    assert two.padding == "right"
