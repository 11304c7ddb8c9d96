"""A loaded run as a queue uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from transduce.errors import TransduceError
from transduce.serve.batches import Answer, Input, ToExplain, ToTranscribe

if TYPE_CHECKING:
    from transduce.decoding.options import DecodingOptions
    from transduce.tasks.task import Prediction


class Answering(Protocol):
    """A loaded run; `serve.worker` has the one that the server uses."""

    @property
    def options(self) -> DecodingOptions | None:
        """Decoding options of the recipe; None for a task without decoding."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the texts of one input."""

    def attempt(
        self,
        inputs: Sequence[Input],
        options: Sequence[DecodingOptions | None],
        first: int,
        cancelled: Callable[[int], bool],
    ) -> Sequence[Prediction | TransduceError]:
        """An answer or an error for each input."""

    def stream(
        self, text: Input, options: DecodingOptions | None, number: int, over: Callable[[], bool]
    ) -> Iterator[str]:
        """An answer in parts."""

    def transcribe(self, given: ToTranscribe, over: Callable[[], bool]) -> Iterator[Any]:
        """Segments of a recording, and at the end its length in seconds."""

    def align(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Answer]:
        """Links between each source and its translation, or the error of the pair."""

    def words(self, pairs: Sequence[tuple[str, str, str]]) -> Sequence[Answer]:
        """Words of each (source, translation, tag), or the error of the pair."""

    def explain(self, text: ToExplain, options: DecodingOptions | None) -> Answer:
        """The page that explains an answer, or the error of the input."""

    def n_tokens(self, inputs: Sequence[Input], answers: Sequence[Answer]) -> tuple[int, int]:
        """Tokens read and written."""

    def count_tokens(self, texts: Sequence[str], written: bool) -> int:
        """Tokens of some texts, as the model reads them, or as it has written them."""
