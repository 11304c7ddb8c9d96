"""One training step of each library, on the same model size, batches and optimizer.

All have tied embeddings of 8,000 entries, label smoothing 0.1, dropout 0.1 after the embeddings
and each sublayer and nowhere else, AdamW in PyTorch's fused form.  x-transformers has dropout after
the embeddings only, which flatters it; Marian is post-norm, the others pre-norm.
"""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from marian import marian as marian_of
from torch import Tensor, nn
from workload import BOS, DROPOUT, EOS, LABEL_SMOOTHING, PAD, UNK, VOCABULARY, Batch, Size

from transduce.models.config import EncoderDecoderConfig
from transduce.nn.stack_configs import TransformerConfig
from transduce.training.trainer import keep_freed_memory

IGNORED = -100


class Tensors(NamedTuple):
    """A batch in the format of most libraries, all (b, t) and padded on the right."""

    source: Tensor
    source_real: Tensor
    given: Tensor
    wanted: Tensor
    labels: Tensor
    target_tokens: int


Step = Callable[[Any], Tensor]
"""Takes a batch, makes one optimizer step, gives the loss per token, not looked at yet."""


class Peer(NamedTuple):
    """A library ready to train."""

    model: nn.Module
    prepare: Callable[[Batch], Any]
    step: Step


def tensors(batch: Batch) -> Tensors:
    """A batch in rectangles."""
    source = _padded([[*source, EOS] for source, _ in batch.pairs])
    given = _padded([[BOS, *target] for _, target in batch.pairs])
    wanted = _padded([[*target, EOS] for _, target in batch.pairs])
    labels = wanted.masked_fill(wanted == PAD, IGNORED)
    return Tensors(source, source != PAD, given, wanted, labels, batch.target_tokens)


def _padded(rows: list[list[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def _stepper(model: nn.Module, loss_of: Callable[[Any], Tensor]) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    model.train()

    def step(batch: Any) -> Tensor:
        loss = loss_of(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def _peer(model: nn.Module, loss_of: Callable[[Any], Tensor]) -> Peer:
    return Peer(model, tensors, _stepper(model, loss_of))


def _smoothed(logits: Tensor, batch: Tensors) -> Tensor:
    flat = logits.reshape(-1, VOCABULARY)
    return F.cross_entropy(flat, batch.labels.flatten(), label_smoothing=LABEL_SMOOTHING)


def config_of(size: Size) -> EncoderDecoderConfig:
    """The model of every library."""
    stack = TransformerConfig(
        n_layers=size.layers, n_heads=size.heads, d_ff=size.inner, norm_order="pre", dropout=DROPOUT
    )
    return EncoderDecoderConfig(d_model=size.width, encoder=stack, decoder=stack)


def transduce(size: Size) -> Peer:
    """This project: the model, the loss and the optimizer that `transduce train` uses."""
    from transduce.data.batches import PairBatch
    from transduce.models.encoder_decoder import build_encoder_decoder
    from transduce.sequence import Padded
    from transduce.tasks.translation.training import pair_loss
    from transduce.training.config import TrainingConfig
    from transduce.training.optimizer import build_optimizer

    keep_freed_memory()
    model = build_encoder_decoder(config_of(size), VOCABULARY, VOCABULARY, joint=True)
    model.train()
    optimizer = build_optimizer(model, TrainingConfig())
    for group in optimizer.param_groups:
        group["lr"] = 1e-4

    def prepare(batch: Batch) -> PairBatch:
        source = Padded.from_rows([[*source, EOS] for source, _ in batch.pairs])
        target = Padded.from_rows([[BOS, *target, EOS] for _, target in batch.pairs])
        rows = torch.arange(len(batch.pairs)).numpy()
        return PairBatch(source, target, rows, batch.target_tokens)

    def step(batch: PairBatch) -> Tensor:
        sums = pair_loss(model, batch, LABEL_SMOOTHING)
        torch.autograd.backward(sums.total / sums.tokens)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return sums.total.detach() / sums.tokens

    return Peer(model, prepare, step)


def marian(size: Size) -> Peer:
    """The Marian model of Hugging Face's transformers."""
    model = marian_of(config_of(size), VOCABULARY, VOCABULARY, joint=True)

    def loss_of(batch: Tensors) -> Tensor:
        output = model(
            input_ids=batch.source,
            attention_mask=batch.source_real,
            decoder_input_ids=batch.given,
            use_cache=False,
        )
        return _smoothed(output.logits, batch)

    return _peer(model, loss_of)


class _TorchTransformer(nn.Module):
    """torch.nn.Transformer between embeddings and a tied output."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        width = size.width
        self.embedding = nn.Embedding(VOCABULARY, width, PAD)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.transformer = nn.Transformer(
            width,
            size.heads,
            size.layers,
            size.layers,
            size.inner,
            DROPOUT,
            batch_first=True,
            norm_first=True,
        )
        for module in self.transformer.modules():  # no dropout where the others have none
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout = nn.Identity()  # type: ignore[assignment]
        self.dropout = nn.Dropout(DROPOUT)
        at = torch.arange(512)[:, None]
        rates = torch.exp(torch.arange(0, width, 2) * (-math.log(1e4) / width))
        self.positions: Tensor
        self.register_buffer("positions", torch.cat([(at * rates).sin(), (at * rates).cos()], 1))

    def forward(self, batch: Tensors) -> Tensor:
        hidden = ~batch.source_real
        t = batch.given.shape[1]
        output = self.transformer(
            self.embed(batch.source),
            self.embed(batch.given),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(t, batch.given.device),
            tgt_is_causal=True,
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
        )
        return output @ self.embedding.weight.t()  # type: ignore[no-any-return]

    def embed(self, ids: Tensor) -> Tensor:
        vectors = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(vectors + self.positions[: ids.shape[1]])  # type: ignore[no-any-return]


def torch_transformer(size: Size) -> Peer:
    """torch.nn.Transformer."""
    model = _TorchTransformer(size)
    return _peer(model, lambda batch: _smoothed(model(batch), batch))


class _Tied(nn.Module):
    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.held = [embedding]  # in a list, lest its weight be counted twice

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.held[0].weight.t()


def x_transformers(size: Size) -> Peer:
    """XTransformer of x-transformers, with its fused attention."""
    library = importlib.import_module("x_transformers")
    sides: dict[str, Any] = {}
    for side in ("enc", "dec"):
        sides |= {
            f"{side}_num_tokens": VOCABULARY,
            f"{side}_depth": size.layers,
            f"{side}_heads": size.heads,
            f"{side}_attn_dim_head": size.width // size.heads,
            f"{side}_max_seq_len": 512,
            f"{side}_ff_mult": size.inner / size.width,
            f"{side}_emb_dropout": DROPOUT,
            f"{side}_attn_flash": True,
        }
    model = library.XTransformer(
        dim=size.width, tie_token_emb=True, pad_value=PAD, ignore_index=IGNORED, **sides
    )
    decoder = model.decoder.net
    decoder.to_logits = _Tied(model.encoder.token_emb.emb)

    def loss_of(batch: Tensors) -> Tensor:
        memory = model.encoder(batch.source, mask=batch.source_real, return_embeddings=True)
        logits = decoder(batch.given, context=memory, context_mask=batch.source_real)
        return _smoothed(logits, batch)

    return _peer(model, loss_of)


def joeynmt(size: Size) -> Peer:
    """JoeyNMT, whose padding is number 1 and unknown word 0; no text here has an unknown word."""
    logging.getLogger("joeynmt").setLevel(logging.CRITICAL)
    build_model = importlib.import_module("joeynmt.model").build_model
    special = SimpleNamespace(
        unk_token="<unk>",
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        sep_token=None,
        pad_id=UNK,
        unk_id=PAD,
        bos_id=BOS,
        eos_id=EOS,
        sep_id=None,
        lang_tags=[],
    )
    words = [f"w{i}" for i in range(VOCABULARY - 4)]
    vocabulary = importlib.import_module("joeynmt.vocabulary").Vocabulary(words, special)
    stack = {
        "type": "transformer",
        "num_layers": size.layers,
        "num_heads": size.heads,
        "hidden_size": size.width,
        "ff_size": size.inner,
        "dropout": DROPOUT,
        "embeddings": {"embedding_dim": size.width, "scale": True, "dropout": DROPOUT},
        "layer_norm": "pre",
    }
    settings = {
        "encoder": dict(stack),
        "decoder": dict(stack),
        "tied_embeddings": True,
        "tied_softmax": True,
        "initializer": "xavier_uniform",
        "embed_initializer": "xavier_uniform",
    }
    model = build_model(settings, vocabulary, vocabulary)
    model.loss_function = ("crossentropy", LABEL_SMOOTHING)

    def loss_of(batch: Tensors) -> Tensor:
        loss = model(
            return_type="loss",
            src=batch.source.clamp(min=UNK),
            src_length=batch.source_real.sum(1),
            src_mask=batch.source_real[:, None, :],
            trg_input=batch.given.clamp(min=UNK),
            trg=batch.wanted.clamp(min=UNK),
            trg_mask=(batch.wanted != PAD)[:, None, :],
        )[0]
        return loss / batch.target_tokens  # type: ignore[no-any-return]

    return _peer(model, loss_of)


PEERS: dict[str, Callable[[Size], Peer]] = {
    "transduce": transduce,
    "transformers": marian,
    "torch.nn.Transformer": torch_transformer,
    "x-transformers": x_transformers,
    "joeynmt": joeynmt,
}
