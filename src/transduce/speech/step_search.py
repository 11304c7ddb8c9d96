"""Search for the text of recordings over the steps of a model, and CTC's part in it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.decoding.backend import (
    NO_AUXILIARY,
    AuxiliaryModels,
    Cancelled,
    Decoded,
    Piece,
    StepSearch,
)
from transduce.decoding.constraints import SearchHooks
from transduce.decoding.ensemble import Ensemble
from transduce.decoding.options import DecodingOptions
from transduce.decoding.search import SearchRequest, search
from transduce.sequence import Padded
from transduce.speech import ctc
from transduce.speech.features import Frames
from transduce.speech.guards import loops
from transduce.speech.model import NativeSpeech, SpeechModel
from transduce.speech.normalisation import Normalisation
from transduce.speech.prompt import Encoded, RecordingSearch, Source
from transduce.speech.recipe import padded_frames
from transduce.text import EOS


class Begun(NamedTuple):
    """A search ready to run, CTC's log-probabilities (b, t', v) if there is a CTC head, and the
    codes of the spoken languages."""

    request: SearchRequest[Any]
    scored: Padded | None
    languages: list[str]


@dataclass(eq=False, kw_only=True)
class SpeechSearch(RecordingSearch, StepSearch):
    """Search by a speech model.

    is_joint: CTC writes the same tokens as the decoder, so that both can search together.
    """

    model: SpeechModel | NativeSpeech
    normalisation: Normalisation
    is_joint: bool
    auxiliary: AuxiliaryModels = NO_AUXILIARY

    def encode(self, recordings: Sequence[Frames], positions: Sequence[int]) -> list[Encoded]:
        """The memory of windows, as tensors."""
        memory = self.memory_of(recordings).values
        return [Encoded(row, n) for row, n in zip(memory, positions, strict=True)]

    def search(
        self,
        pieces: Sequence[Piece],
        options: DecodingOptions,
        cancelled: Cancelled | None = None,
    ) -> list[Decoded]:
        """Decode some recordings together.

        pieces: of the recordings.  options: of decoding.  cancelled: called between steps with the
        index of a piece.
        """
        request, scored, languages = self.begin(pieces, options)
        at, token = self.prompt.start, self.prompt.no_speech
        no_speech: list[float | None] = [None] * len(pieces)

        def step(ids: Padded, state: Any) -> Tensor:
            logits = request.step(ids, state)
            if token is not None and no_speech[0] is None:  # the first step, of all pieces
                no_speech[:] = logits[:, at].float().softmax(-1)[:, token].tolist()
            return logits

        hypotheses = search(replace(request, step=step, cancelled=cancelled))
        heard: Sequence[Tensor | None] = [None] * len(pieces)
        if scored is not None:
            lengths = scored.lengths.tolist()
            heard = [row[:n].cpu() for row, n in zip(scored.values, lengths, strict=True)]
        return [
            Decoded(*parts) for parts in zip(hypotheses, heard, languages, no_speech, strict=True)
        ]

    def request(self, pieces: Sequence[Piece], options: DecodingOptions) -> SearchRequest[Any]:
        """The search for the texts of some recordings, ready to run."""
        return self.begin(pieces, options).request

    @torch.inference_mode()
    def begin(self, pieces: Sequence[Piece], options: DecodingOptions) -> Begun:
        """The search, with what it is made of."""
        memory = self.memory_of([piece.source for piece in pieces])
        languages = self.languages_of(memory, [piece.source for piece in pieces])
        prefix = [self.prompt.speaking(language).ids for language in languages]
        scored = None if self.model.ctc is None else self.model.ctc_log_probs(memory)
        constraints = [piece.constraints for piece in pieces]
        model: Any = self.model
        state: Any
        if scored is not None and options.ctc_weight and self.is_joint:
            model = ctc.JointModel(self.model, options.ctc_weight)
            hooks, state = model.hooks(constraints), model.over(memory, scored)
        else:
            hooks = SearchHooks(constraints, filters=self.prompt.filters)
            state = self.model.over(memory)
        if self.auxiliary.language_model is not None and options.language_model_weight:
            model = Ensemble([model], self.auxiliary.language_model, options)
            hooks, state = model.beside(hooks), model.over([state], memory.real)
        request = SearchRequest(
            model.step,
            state,
            Padded.unpadded(torch.tensor(prefix, device=memory.values.device)),
            torch.tensor([piece.limit for piece in pieces]),
            EOS,
            self.prompt.forbidden,
            options,
            [piece.stream for piece in pieces],
            None if self.prompt.no_times is None else self._loops,
            hooks=hooks,
        )
        return Begun(request, scored, languages)

    def _loops(self, piece: int, tokens: list[int]) -> bool:
        """True if an output of a piece goes round in circles."""
        return loops([token for token in tokens if token not in self.prompt.times])

    @torch.inference_mode()
    def memory_of(self, recordings: Sequence[Source]) -> Padded:
        """Recordings -> memory (b, t', m)."""
        known = [
            torch.as_tensor(source.memory) for source in recordings if isinstance(source, Encoded)
        ]
        if known:
            return Padded.unpadded(torch.stack(known))  # windows, which are of one length
        rows = [source for source in recordings if not isinstance(source, Encoded)]
        frames = self.normalisation(padded_frames(rows))
        return self.model.eval().encode(frames.to(self.model.device))

    @torch.inference_mode()
    def logits_after(self, ids: Sequence[int], memory: Padded) -> NDArray[np.float32]:
        """Logits (b, t, v) after each of some ids, the same for all recordings of a memory
        (b, t', m)."""
        rows = torch.tensor([list(ids)] * len(memory.values), device=memory.values.device)
        state: Any = self.model.over(memory)
        logits: NDArray[np.float32] = (
            self.model.step(Padded.unpadded(rows), state).float().cpu().numpy()
        )
        return logits
