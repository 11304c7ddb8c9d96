"""The pipeline of transformers 4: its call forms, results and refusals."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import transduce
from transduce import DataError, SettingError

KEPT = Path(__file__).parents[1] / "runs" / "0.1.0"
RUN = KEPT / "translation"
TEXTS = ["a good hat", "hat dog"]


def test_call_forms_and_results() -> None:
    translator = transduce.pipeline("translation", model=RUN, device=-1)
    run = transduce.load(RUN, "cpu")
    texts = [answer.text for answer in run(TEXTS)]
    assert translator(TEXTS[0]) == [{"translation_text": texts[0]}]
    expected = [{"translation_text": text} for text in texts]
    assert translator(TEXTS, truncation=True, clean_up_tokenization_spaces=False) == expected
    each = translator((text for text in TEXTS), batch_size=1)
    assert list(each) == [[row] for row in expected]
    assert translator([]) == [] and translator("") == [{"translation_text": ""}]


def test_settings_are_those_of_the_search() -> None:
    translator = transduce.pipeline("translation", RUN, device="cpu")
    run = transduce.load(RUN, "cpu")
    best = run(TEXTS[0], beam_size=4, n_best=3).candidates
    expected = [{"translation_text": candidate.text} for candidate in best]
    assert translator(TEXTS[0], num_beams=4, num_return_sequences=3) == expected
    assert translator(TEXTS[:1], num_beams=4, num_return_sequences=3) == [expected]
    for settings in ({"max_length": 4}, {"max_new_tokens": 2}):
        (short,) = translator(TEXTS[0], **settings)  # type: ignore[arg-type]
        text = run(TEXTS[0], max_length_ratio=0.0, max_length_extra=2).text
        assert short == {"translation_text": text}
    for wrong in ({"do_sample": True}, {"forced_bos_token_id": 3}):
        with pytest.raises(SettingError, match="is not followed by this pipeline"):
            translator("a", **wrong)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=r"transduce\.pipeline has 'translation'"):
        transduce.pipeline("summarization", RUN)
    with pytest.raises(SettingError, match="of the task 'classification'"):
        transduce.pipeline("translation", KEPT / "classification", -1)


@pytest.mark.parametrize("texts", [None, 3, b"a hat", {"a": "hat"}, ["a hat", None], [["hat"]]])
def test_what_is_no_text_is_refused(texts: Any) -> None:
    translator = transduce.pipeline("translation", RUN, device=-1)
    with pytest.raises(DataError, match="not"):
        translator(texts)


def test_numbers_from_one() -> None:
    translator = transduce.pipeline("translation", RUN, device=-1)
    for settings in ({"batch_size": 0}, {"batch_size": "8"}, {"max_length": -5}):
        with pytest.raises(SettingError, match="is not a number from 1"):
            translator(TEXTS, **settings)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="task None"):
        transduce.pipeline(None, RUN)  # type: ignore[arg-type]


def test_devices() -> None:
    assert transduce.pipeline("translation", RUN, None)("a dog") == transduce.pipeline(
        "translation", RUN, -1
    )("a dog")
    with pytest.raises(SettingError, match=r"device=1\.5 is not a number or a name of a device"):
        transduce.pipeline("translation", RUN, 1.5)  # type: ignore[arg-type]


def test_languages_select_tags(tmp_path: Path) -> None:
    several = shutil.copytree(RUN, tmp_path / "several")
    with (several / "recipe.toml").open("a") as recipe:
        recipe.write('\n[languages]\nsource = "de"\ntarget = ["fr", "en"]\n')
    run = transduce.load(several, "cpu")
    expected = [{"translation_text": run("<fr> ab").text}]
    assert transduce.pipeline("translation_de_to_fr", several, -1)("ab") == expected
    translator = transduce.pipeline("translation", several, -1)
    assert translator("ab", src_lang="de_DE", tgt_lang="fr") == expected
    with pytest.raises(SettingError, match=r"tgt_lang=None: .* has the languages fr, en"):
        translator("ab")
    with pytest.raises(SettingError, match=r"tgt_lang='es': .* has the languages fr, en"):
        translator("ab", src_lang="de", tgt_lang="es")
