"""Voices of Piper (VITS) and Kokoro in ONNX, behind the calls of speech synthesis; imported from
their files.

espeak-ng, a program, writes the phones, and ONNX Runtime computes the samples (Kim et al. 2021, Li
et al. 2023).
"""

import copy
import functools
import itertools
import json
import math
import re
import shutil
import subprocess
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError, InputError, RunError, SettingError, extra_module
from transduce.interop.voice import BEGIN, BETWEEN, CONFIG, END, STYLES, UNREADABLE, WEIGHTS
from transduce.speech.features import Mel
from transduce.speech.reading import checked_letters, read_out
from transduce.speech.spoken import SeveralVoices, Speech, blocks_of, joined_speech
from transduce.speech.synthesiser import SynthesisRecipe
from transduce.tasks.evaluation import Evaluation
from transduce.tasks.recipe import Split
from transduce.tasks.task import Example, OnDevice
from transduce.text.scripts import script_of

CLAUSES = re.compile(r"([.,;:!?…])(?=\s|$)")
SWITCHES = re.compile(r"\([a-z-]+\)")
"""Marks of espeak-ng for a word of another language."""
SCRIPTS = {
    "CYRILLIC": ("ru", "uk", "be", "bg", "mk", "sr", "kk", "ky", "tt"),
    "GREEK": ("el", "grc"),
    "ARABIC": ("ar", "fa", "ur"),
    "CJK": ("cmn", "zh", "yue", "ja"),
    "HANGUL": ("ko",),
    "HEBREW": ("he",),
    "DEVANAGARI": ("hi", "mr", "ne"),
    "GEORGIAN": ("ka",),
    "ARMENIAN": ("hy",),
    "TAMIL": ("ta",),
    "TELUGU": ("te",),
    "BENGALI": ("bn",),
    "MALAYALAM": ("ml",),
}
"""Languages whose letters are not Latin; these read Latin letters too."""
KANA = ("HIRAGANA", "KATAKANA")
"""Beginnings of the names of letters that espeak-ng reads in Japanese."""
KOKORO_LANGUAGES = {
    "a": "en-us",
    "b": "en-gb",
    "e": "es",
    "f": "fr-fr",
    "h": "hi",
    "i": "it",
    "j": "ja",
    "p": "pt-br",
    "z": "cmn",
}
"""By the first letter of a speaker's name."""
JOINED = {"dʒ": "ʤ", "tʃ": "ʧ", "ts": "ʦ", "dz": "ʣ", "tɕ": "ʨ", "dʑ": "ʥ"}
"""Kokoro's letters for affricates of espeak-ng."""
ENGLISH = {
    "eɪ": "A",
    "aɪ": "I",
    "aʊ": "W",
    "ɔɪ": "Y",
    "oʊ": "O",
    "əʊ": "Q",
    "ɜː": "ɜɹ",
    "ɚ": "əɹ",
    "ɐ": "ə",
    "əl": "ᵊl",
    "r": "ɹ",
    "e": "A",
    "ː": "",
}
"""Kokoro's letters for the diphthongs of espeak-ng, in the order of their replacement."""


class Voice(OnDevice, SeveralVoices):
    """An imported voice."""

    inputs: tuple[str, ...] = ("text",)
    options: DecodingOptions | None = None
    most_phones: float = math.inf
    """Phones of a sequence, at most."""

    def __init__(self, recipe: SynthesisRecipe, run: Path) -> None:
        """Raises RunError for damaged files, SettingError without ONNX Runtime or espeak-ng."""
        runtime = extra_module("onnxruntime", "a voice of ONNX", "voices")
        if shutil.which("espeak-ng") is None:
            raise SettingError("this voice needs the program espeak-ng; install it")
        self.recipe = recipe
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        try:
            self._config = json.loads((run / CONFIG).read_bytes())
            self._phone_ids: dict[str, list[int]] = self._config["phoneme_id_map"]
            self._session = runtime.InferenceSession(
                (run / WEIGHTS).read_bytes(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # the runtime's own errors have no common class
            raise RunError(f"{run} has no voice that can be read: {error}") from None
        named = self._config.get("speaker_id_map") or {}
        self.speakers = tuple(sorted(named, key=named.__getitem__))
        self.speaker = self.speakers[0] if self.speakers else ""
        self.inputs = ("text", "speaker") if self.speakers else ("text",)
        self.features = Mel(recipe.audio.rate, recipe.audio.bins)
        self.speed = recipe.speaking.speed
        self.model = nn.ParameterList([nn.Parameter(torch.zeros(0))])  # none of PyTorch

    def predict(
        self,
        inputs: Sequence[tuple[str, ...]],
        options: DecodingOptions | None = None,
        first: int = 0,
    ) -> list[Speech]:
        """Speech of each text; as of `Synthesiser.predict`."""
        speakers = [speaker for _, *rest in inputs for speaker in rest]
        return list(self.speak([text for text, *_ in inputs], first, speakers or None))

    def speak(
        self, texts: Iterable[str], first: int = 0, speakers: Sequence[str] | None = None
    ) -> Iterator[Speech]:
        """Speech of each text, lazily; as of `Synthesiser.speak`."""
        for i, text in enumerate(texts):
            number = self.checked_number(speakers[i] if speakers else "", first + i)
            language = self.language_of(number)
            words = read_out(text, language)
            known = functools.partial(self._knows, language)
            plain = checked_letters(words, known, first + i, language)
            blocks = [self._said(block, number, first + i) for block in blocks_of(plain)]
            yield joined_speech(blocks) if blocks else self._speech(np.zeros(0, np.float32))

    def speaking(self, speed: float | None = None, speaker: str | None = None) -> "Voice":
        """This voice at a speed, or another of its speakers.  Raises SettingError."""
        other = copy.copy(self)
        other.inputs = ("text",)
        other.speed = self.speed if speed is None else speed
        if speaker:
            other.speaker = self.speakers[self.number_of(speaker)] if self.speakers else ""
        return other

    def language_of(self, speaker: int) -> str:
        """Code of the language that a speaker reads, as espeak-ng has it."""
        voice: str = self._config["espeak"]["voice"]
        return voice

    def _knows(self, language: str, letter: str) -> bool:
        script, code = script_of(letter), language.split("-")[0]
        if code == "ja" and script == "CJK":
            return unicodedata.name(letter).startswith(KANA)
        return letter.isascii() or script == "LATIN" or code in SCRIPTS.get(script, ())

    def phones(self, text: str, language: str) -> list[str]:
        """Phones of a text, with its punctuation."""
        symbols: list[str] = []
        clauses = CLAUSES.split(text)
        for words, sign in zip(clauses[::2], [*clauses[1::2], ""], strict=True):
            if words.strip():
                gap = " " if symbols else ""
                symbols += gap + phones_of(words.strip(), language)
            symbols += sign
        return symbols

    def _said(self, text: str, speaker: int, number: int) -> Speech:
        """Speech of a part of a text; number: of the text."""
        phones = self.phones(text, self.language_of(speaker))
        ids = [self._phone_ids[phone] for phone in phones if phone in self._phone_ids]
        if not ids:
            raise InputError(number, f"the voice has no sound for {text[:40]!r}")
        if len(ids) > self.most_phones:
            raise InputError(number, f"{text[:40]!r}… has too many sounds; divide it by full stops")
        samples = self._session.run(None, self._inputs(ids, speaker))[0]
        return self._speech(np.clip(samples.reshape(-1), -1, 1).astype(np.float32))

    def _inputs(self, phones: Sequence[Sequence[int]], speaker: int) -> dict[str, NDArray[Any]]:
        """Inputs of the graph for the ids of each phone."""
        between = self._phone_ids[BETWEEN]
        ids = [*self._phone_ids[BEGIN], *between]
        for phone in phones:
            ids += [*phone, *between]
        ids += self._phone_ids[END]
        length = self._config.get("inference", {}).get("length_scale", 1.0) / self.speed
        inputs: dict[str, NDArray[Any]] = {
            "input": np.array([ids], np.int64),
            "input_lengths": np.array([len(ids)], np.int64),
            "scales": np.array([0.0, length, 0.0], np.float32),  # no noise: equal texts sound alike
        }
        if self.speakers:
            inputs["sid"] = np.array([speaker], np.int64)
        return inputs

    def _speech(self, samples: NDArray[np.float32]) -> Speech:
        frames = torch.from_numpy(self.features(samples)) if len(samples) else torch.zeros(0, 1)
        return Speech(frames, self.features, ends=(0,), speaker=self.speaker, of_vocoder=samples)

    def evaluate(
        self,
        split: Split,
        examples: Iterable[Example] | None = None,
        options: DecodingOptions | None = None,
    ) -> Evaluation:
        """Raises DataError: there are no recordings to compare with."""
        raise DataError("an imported voice has no recordings to be measured by")

    def facts(self) -> dict[str, Any]:
        """Phones, rate and speakers."""
        phones = {"phones": len(self._phone_ids), "rate": self.features.rate}
        return phones | ({"speakers": list(self.speakers)} if self.speakers else {})


class KokoroVoice(Voice):
    """An imported Kokoro: phones in one sequence, and a style by their number."""

    most_phones = 510

    def __init__(self, recipe: SynthesisRecipe, run: Path) -> None:
        """As `Voice`; a blank text.language is that of each speaker, by the name's first letter."""
        super().__init__(recipe, run)
        try:
            with np.load(run / STYLES) as archive:
                self._styles = [archive[name] for name in self.speakers]
        except UNREADABLE as error:
            raise RunError(f"{run} has no styles that can be read: {error}") from None

    def language_of(self, speaker: int) -> str:
        """The recipe's, or the one that the speaker's name begins with."""
        code = self.recipe.text.language or KOKORO_LANGUAGES.get(self.speakers[speaker][:1], "")
        return "en-us" if code in ("", "en") else code

    def phones(self, text: str, language: str) -> list[str]:
        """Phones of a text, with its punctuation, as Kokoro has learnt them."""
        spelt = "".join(super().phones(text, language))
        letters = JOINED | (ENGLISH if language[:2] == "en" else {})
        for symbols, symbol in letters.items():
            spelt = spelt.replace(symbols, symbol)
        return list(spelt)

    def _inputs(self, phones: Sequence[Sequence[int]], speaker: int) -> dict[str, NDArray[Any]]:
        ids, style = list(itertools.chain.from_iterable(phones)), self._styles[speaker]
        return {
            self._session.get_inputs()[0].name: np.array([[0, *ids, 0]], np.int64),
            "style": style[min(len(ids), len(style)) - 1],
            "speed": np.array([self.speed], np.float32),
        }


@functools.lru_cache(maxsize=4096)
def phones_of(words: str, voice: str) -> str:
    """Phones of some words in the letters of the IPA.  Raises SettingError for a voice that
    espeak-ng does not have."""
    command = ["espeak-ng", "-q", "--ipa", "-v", voice, "--stdin"]
    done = subprocess.run(command, input=words, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise SettingError(f"espeak-ng has no voice {voice!r}: {done.stderr.strip()[:200]}")
    return SWITCHES.sub("", " ".join(done.stdout.split()))
