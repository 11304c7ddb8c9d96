"""Search for the text of recordings: prompts, detection of the language, CTC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from transduce.decoding import ctc
from transduce.decoding.auxiliary_models import NO_AUXILIARY, AuxiliaryModels
from transduce.decoding.backend import Cancelled, Decoded, Piece, StepSearch
from transduce.decoding.ensemble import Ensemble
from transduce.decoding.options import DecodingOptions
from transduce.decoding.output_constraints import SearchHooks
from transduce.decoding.search import SearchRequest, search
from transduce.engine.speech import NativeSpeech
from transduce.models.speech import SpeechModel
from transduce.sequence import Padded
from transduce.tasks.speech.guards import loops
from transduce.tasks.speech.normalisation import Normalisation
from transduce.tasks.speech.prompt import Prompt
from transduce.tasks.speech.recordings import padded_frames
from transduce.text import BOS, EOS

DETECTED_TOGETHER = 4
"""Number of recordings used to detect their common language."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """A recording that the encoder has read: its memory (t', m), with sound in the first
    `positions`."""

    memory: Tensor
    positions: int


Source = Tensor | Encoded
"""A recording: frames (t, f), not normalised, or its memory."""


@dataclass(eq=False)
class SpeechSearch(StepSearch):
    """Search by a speech model.

    is_joint: CTC writes the same tokens as the decoder, so that both can search together.
    """

    model: SpeechModel | NativeSpeech
    normalisation: Normalisation
    prompt: Prompt
    is_joint: bool
    auxiliary: AuxiliaryModels = NO_AUXILIARY

    def encode(self, recordings: Sequence[Tensor], positions: Sequence[int]) -> list[Encoded]:
        """The memory of windows of one length, from their frames (t, f), not normalised.

        positions: with sound, of each.
        """
        memory = self._encode(recordings).values
        return [Encoded(row, n) for row, n in zip(memory, positions, strict=True)]

    def languages_of(self, recordings: Sequence[Encoded]) -> list[int]:
        """Ids of the spoken language of each; 0 if it is not to be detected."""
        if not self.prompt.languages:
            return [0] * len(recordings)
        best = self._languages(self._encode(recordings)).argmax(1).tolist()
        ids = [*self.prompt.languages.values()]
        return [ids[i] for i in best]

    def listening_to(self, recordings: Sequence[Source]) -> SpeechSearch:
        """The search with the language detected in the first recordings, if it is to be
        detected."""
        rows = [source for source in recordings if isinstance(source, Encoded) or len(source)]
        if not self.prompt.languages or not rows:
            return self
        sums = self._languages(self._encode(rows[:DETECTED_TOGETHER])).sum(0)
        detected = [*self.prompt.languages][int(sums.argmax())]
        return replace(self, prompt=self.prompt.speaking(detected))

    def search(
        self,
        pieces: Sequence[Piece],
        options: DecodingOptions,
        cancelled: Cancelled | None = None,
    ) -> list[Decoded]:
        """Decode some recordings together."""
        request, scored = self.begin(pieces, options)
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
        languages = self._languages_in(request.prefix.values)
        return [
            Decoded(*parts) for parts in zip(hypotheses, heard, languages, no_speech, strict=True)
        ]

    def request(self, pieces: Sequence[Piece], options: DecodingOptions) -> SearchRequest[Any]:
        """The search for the texts of some recordings, ready to run."""
        return self.begin(pieces, options)[0]

    @torch.inference_mode()
    def begin(
        self, pieces: Sequence[Piece], options: DecodingOptions
    ) -> tuple[SearchRequest[Any], Padded | None]:
        """The search, and CTC's log-probabilities (b, t', v) if there is a CTC head."""
        memory = self._encode([piece.source for piece in pieces])
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
            Padded.unpadded(self._prefix(memory)),
            torch.tensor([piece.limit for piece in pieces]),
            EOS,
            self.prompt.forbidden,
            options,
            [piece.stream for piece in pieces],
            None if self.prompt.no_times is None else self._loops,
            hooks=hooks,
        )
        return request, scored

    def _loops(self, piece: int, tokens: list[int]) -> bool:
        """True if an output of a piece goes round in circles."""
        return loops([token for token in tokens if token not in self.prompt.times])

    @torch.inference_mode()
    def _encode(self, recordings: Sequence[Source]) -> Padded:
        """Recordings -> memory (b, t', m)."""
        known = [source.memory for source in recordings if isinstance(source, Encoded)]
        if known:
            return Padded.unpadded(torch.stack(known))  # windows, which are of one length
        rows = [source for source in recordings if isinstance(source, Tensor)]
        frames = self.normalisation(padded_frames(rows))
        return self.model.eval().encode(frames.to(self.model.device))

    @torch.inference_mode()
    def _languages(self, memory: Padded) -> Tensor:
        """(b, k) log-probabilities of the languages to detect, after BOS alone."""
        begin = torch.full((len(memory.values), 1), BOS, device=memory.values.device)
        state: Any = self.model.over(memory)
        logits = self.model.step(Padded.unpadded(begin), state)[:, -1]
        return logits.float()[:, list(self.prompt.languages.values())].log_softmax(-1)

    def _prefix(self, memory: Padded) -> Tensor:
        """(b, p) ids before each output, with the language of each recording."""
        device = memory.values.device
        ids = torch.tensor([self.prompt.ids] * len(memory.values), device=device)
        if self.prompt.languages:
            codes = torch.tensor([*self.prompt.languages.values()], device=device)
            ids[:, self.prompt.language_at] = codes[self._languages(memory).argmax(1)]
        return ids

    def _languages_in(self, prefix: Tensor) -> list[str]:
        """(b) codes of the spoken languages in ids (b, p) before the outputs."""
        if not self.prompt.languages:
            return [self.prompt.language] * len(prefix)
        codes = {i: code for code, i in self.prompt.languages.items()}
        return [codes[i] for i in prefix[:, self.prompt.language_at].tolist()]
