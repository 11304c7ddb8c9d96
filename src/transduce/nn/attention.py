"""Scaled dot-product attention and its multi-head form (Vaswani et al. 2017), with kernels for
packed rows and bfloat16."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.masks import Mask
from transduce.nn.positions import NO_PADDING, RotaryAngles, Unpadding, rotate
from transduce.nn.stack_configs import head_width
from transduce.nn.state import KeyValue, KeyValueCache
from transduce.sequence import Borders

MAX_KEYS = 256
"""Maximum number of keys, since all weights are stored; beyond it, a fused kernel is used."""


def is_supported(key: Tensor) -> bool:
    """True if keys (…, s, d) are few enough, and PyTorch is not compiling."""
    return key.shape[-2] <= MAX_KEYS and not torch.compiler.is_compiling()


def bf16_attention(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> Tensor:
    """Attention (b, h, t, d), its products in bfloat16 and its softmax in float32, as autocast has
    it, where allowed, broadcastable to (b, h, t, s); zeros where no position is allowed.

    query: (b, h, t, d).  key, value: (b, h, s, d).
    """
    return _Bf16Attention.apply(query, key, value, allowed)  # type: ignore[no-any-return, no-untyped-call]


class _Bf16Attention(torch.autograd.Function):
    """Custom gradient: autograd would keep and read scores and weights in both precisions."""

    @staticmethod
    def forward(
        context: Any, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None
    ) -> Tensor:
        b, h, t, d = query.shape
        q, k, v = (part.reshape(b * h, -1, d) for part in (query, key, value))
        scores = torch.bmm(q, k.transpose(1, 2)).float().mul_(d**-0.5)  # (b·h, t, s)
        hidden = None if allowed is None else allowed.logical_not()
        if hidden is not None:
            scores.view(b, h, t, -1).masked_fill_(hidden, float("-inf"))
        weights = scores.softmax(-1).to(q.dtype)
        if hidden is not None:  # softmax over nothing is not a number
            weights.view(b, h, t, -1).masked_fill_(hidden, 0.0)
        context.save_for_backward(q, k, v, weights)
        return torch.bmm(weights, v).view(b, h, t, d)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights = context.saved_tensors
        b, h, t, d = gradients[0].shape
        of_output = gradients[0].reshape(b * h, t, d)
        of_weights = torch.bmm(of_output, v.transpose(1, 2)).float()
        wide = weights.float()
        of_scores = of_weights.sub_((of_weights * wide).sum(-1, keepdim=True)).mul_(wide)
        narrow = of_scores.mul_(d**-0.5).to(q.dtype)
        each = (
            torch.bmm(narrow, k),
            torch.bmm(narrow.transpose(1, 2), q),
            torch.bmm(weights.transpose(1, 2), of_output),
        )
        return (*(part.view(b, h, -1, d) for part in each), None)


LARGEST_HEAD = 256
WHOLE: dict[str, Any] = {"num_splits": 1} if torch.__version__ >= "2.12" else {}
"""Keys in one pass, so that a sentence gets the same in any batch."""


def packed_attention(
    query: Tensor, key: Tensor, value: Tensor, queries: Borders, keys: Borders, causal: bool
) -> Tensor:
    """Queries (b, h, t, d) over keys and values (b, h, s, d) -> (b, h, t, d), within borders.

    Positions outside the borders get any values, not even finite ones.  causal: borders of queries
    and keys are the same, and each query attends to keys up to itself.

    key, value: (b, h, s, d).
    """
    from torch.nn.attention.varlen import varlen_attn  # takes a second to import

    rows = [part.transpose(1, 2).flatten(0, 1) for part in (query, key, value)]  # (b·t, h, d)
    mixed = varlen_attn(
        rows[0],
        rows[1],
        rows[2],
        queries.starts,
        keys.starts,
        queries.longest,
        keys.longest,
        window_size=(-1, 0) if causal else (-1, -1),
        **WHOLE,
    )
    assert isinstance(mixed, Tensor), "no log-sum-exp was asked for"
    b, h, t, d = query.shape
    return mixed.view(b, t, h, d).transpose(1, 2)


def refusal(device: torch.device, d_head: int, dtype: torch.dtype) -> str:
    """Reason why the kernel cannot be used; empty if it can.

    device: of the tensors.  d_head: width of a head.  dtype: of query, key and value.
    """
    if device.type != "cuda":
        return "attention by borders needs a GPU"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "the GPU is older than Ampere"
    if dtype not in (torch.bfloat16, torch.float16):
        return 'training.precision is "float32"'
    if d_head % 8 or d_head > LARGEST_HEAD:
        return f"heads are {d_head} wide, not a multiple of 8 up to {LARGEST_HEAD}"
    return ""


NOTHING_HIDDEN = Mask()


class StepContext(NamedTuple):
    """Context of a pass through a stack, the same for all its layers.

    mask:        of self-attention; with fewer rows in the cache, of the positions folded into them.
    angles:      rotary angles of the positions, folded or not.
    unpadding:   padding removed from the vectors between attentions.
    memory_mask: of cross-attention.
    """

    mask: Mask = NOTHING_HIDDEN
    angles: RotaryAngles | None = None
    unpadding: Unpadding = NO_PADDING
    memory_mask: Mask = NOTHING_HIDDEN


def attention_with_weights(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask = NOTHING_HIDDEN, dropout: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Attention(Q, K, V) = softmax(Q Kᵀ / √d) V, equation (1), from query (…, t, d), key and value
    (…, s, d); and its weights (…, t, s), all zero where no position is allowed.

    mask: keys to hide and bias of the scores.  dropout: probability of dropping a weight.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])  # (…, t, s)
    if mask.bias is not None:
        scores = scores + mask.bias
    allowed = mask.explicit(query.shape[-2], key.shape[-2], query.device)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
    weights = scores.softmax(-1)
    if allowed is not None:  # a query that may look at nothing gets zeros, as from fused kernels
        weights = weights.masked_fill(~allowed, 0.0)
    return F.dropout(weights, dropout) @ value, weights


def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask = NOTHING_HIDDEN, dropout: float = 0.0
) -> Tensor:
    """Output of `attention_with_weights`, by PyTorch's fused kernels without a (t, s) matrix.

    query, key, value, mask and dropout are as in `attention_with_weights`; without dropout where
    the mask holds borders.
    """
    if mask.queries is not None and mask.keys is not None:
        assert not dropout, "attention by borders drops no weights"
        if query.device.type != "cpu":
            return packed_attention(query, key, value, mask.queries, mask.keys, mask.causal)
        mask = Mask(allowed=mask.explicit(query.shape[-2], key.shape[-2], query.device))
    if query.requires_grad and query.device.type == "cpu" and query.dtype == torch.bfloat16:
        if mask.bias is None and mask.sum is None and not dropout and is_supported(key):
            allowed = mask.explicit(query.shape[-2], key.shape[-2], query.device)
            return bf16_attention(query, key, value, allowed)
        # PyTorch's way back through its bfloat16 kernel takes a CPU five to ten times as long.
        with torch.autocast("cpu", enabled=False):
            mixed = attention(query.float(), key.float(), value.float(), mask.in_float32(), dropout)
            return mixed.to(query.dtype)
    if mask.sum is None and mask.bias is not None:
        mask = mask.summed(query.shape[-2], key.shape[-2], query)
    allowed = mask.allowed if mask.sum is None else mask.sum
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=allowed,
        dropout_p=dropout,
        is_causal=mask.causal and mask.sum is None,
    )


class RecordedAttention(nn.Module):
    """Attention that can be observed: while `weights` is a list, each call appends its weights (b,
    h, t, s), detached from the graph unless `trained_by_weights`, as where a loss is of the
    weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[Tensor] | None = None
        self.trained_by_weights = False

    def record(self, weights: Tensor) -> None:
        """Record weights (b, h, t, s) if recording is on."""
        if self.weights is not None:
            self.weights.append(weights if self.trained_by_weights else weights.detach())


class MultiHeadAttention(RecordedAttention):
    """Common part of self-attention and cross-attention: MultiHead = Concat(head_1 … head_h) W^O,
    head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).  The matrices of all heads stand side by side."""

    def __init__(
        self, d_model: int, n_heads: int, dropout: float, d_head: int | None = None
    ) -> None:
        """d_head: width of a head.  Raises SettingError if none fits d_model."""
        super().__init__()
        self.n_heads = n_heads
        self.dropout = dropout
        self.width = n_heads * head_width(d_model, n_heads, d_head)
        self.output = nn.Linear(self.width, d_model)

    def heads(self, x: Tensor, parts: int) -> list[Tensor]:
        """(b, t, parts·m) -> parts of (b, h, t, d)."""
        b, t, width = x.shape
        d = width // (parts * self.n_heads)
        # not one permutation before: backward, it would copy the gradients once more
        return [part.transpose(1, 2) for part in x.view(b, t, parts, self.n_heads, d).unbind(2)]

    def attend(self, query: Tensor, memory: KeyValue, mask: Mask) -> Tensor:
        """(b, h, t, d) over keys and values (b, h, s, d) -> (b, t, h, d), before the projection.

        query: (b, h, t, d).  memory: keys and values of one side.  mask: keys to hide, and bias.
        """
        dropout = self.dropout if self.training else 0.0
        if self.weights is None:
            mixed = attention(query, memory.key, memory.value, mask, dropout)
        else:
            mixed, weights = attention_with_weights(query, memory.key, memory.value, mask, dropout)
            self.record(weights)
        return mixed.transpose(1, 2)


class SelfAttention(MultiHeadAttention):
    """Self-attention: queries, keys and values from a projection of the same sequence."""

    def __init__(
        self, d_model: int, n_heads: int, dropout: float = 0.0, d_head: int | None = None
    ) -> None:
        super().__init__(d_model, n_heads, dropout, d_head)
        self.query_key_value = nn.Linear(d_model, 3 * self.width)

    def forward(
        self, x: Tensor, context: StepContext, cache: KeyValueCache | None = None
    ) -> Tensor:
        """x (b, t, m), or unpadded (n, m), -> the same shape; `cache` takes in its keys."""
        projected = context.unpadding.pad(self.query_key_value(x))
        folded = projected if cache is None else cache.fold(projected)
        query, key, value = self.heads(folded, 3)
        if context.angles is not None:
            query, key = rotate(query, context.angles), rotate(key, context.angles)
        keys = KeyValue(key, value)
        mixed = self.attend(query, keys if cache is None else cache.append(keys), context.mask)
        mixed = mixed.reshape(*projected.shape[:2], -1)  # unfolded
        return self.output(context.unpadding.unpad(mixed))  # type: ignore[no-any-return]


class CrossAttention(MultiHeadAttention):
    """Cross-attention: queries from the target, keys and values from the memory."""

    def __init__(
        self, d_model: int, n_heads: int, dropout: float = 0.0, d_head: int | None = None
    ) -> None:
        super().__init__(d_model, n_heads, dropout, d_head)
        self.query = nn.Linear(d_model, self.width)
        self.key_value = nn.Linear(d_model, 2 * self.width)

    def project(self, memory: Tensor, unpadding: Unpadding = NO_PADDING) -> KeyValue:
        """Keys and values (b, h, s, d) of the memory (b, s, m), made once per sentence."""
        key, value = self.heads(unpadding.pad(self.key_value(memory)), 2)
        return KeyValue(key, value)

    def forward(self, x: Tensor, context: StepContext, memory: KeyValue) -> Tensor:
        """x (b·k, t, m), or without its padding (n, m), over a memory of b rows -> the same shape.

        The k hypotheses of a sentence, rows k·i to k·i + k - 1, become k·t queries of a row, so
        that its keys and values are neither copied nor read k times.
        """
        queries = context.unpadding.pad(self.query(x))
        sentences, n_heads, _, d = memory.key.shape
        folded = queries.view(sentences, -1, n_heads, d).transpose(1, 2)
        mixed = self.attend(folded, memory, context.memory_mask).reshape(queries.shape)
        return self.output(context.unpadding.unpad(mixed))  # type: ignore[no-any-return]


def record_into(model: nn.Module, on: bool) -> dict[str, list[Tensor]]:
    """Begin (or end) the recording of every attention in `model`; the lists by module name."""
    lists: dict[str, list[Tensor]] = {}
    for name, module in model.named_modules():
        if isinstance(module, RecordedAttention):
            module.weights = lists.setdefault(name, []) if on else None
    return lists


@contextmanager
def record_attention(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Record the weights of every attention within the context; results do not change.

    Yields a dict from names, such as `decoder.layers.0.cross_attention`, to lists with a tensor (b,
    h, t, s) per call; in beam search, with the k hypotheses of a sentence in a row, (n, h, k·t,
    s).
    """
    try:
        yield record_into(model, on=True)
    finally:
        record_into(model, on=False)


@contextmanager
def weights_with_gradient(attention: RecordedAttention) -> Iterator[list[Tensor]]:
    """Attention weights of each call in the context, with gradient."""
    recorded: list[Tensor] = []
    attention.weights, attention.trained_by_weights = recorded, True
    try:
        yield recorded
    finally:
        attention.weights, attention.trained_by_weights = None, False
