"""Lines to speak before telephone prompts are learnt: five languages, for `synthetic_speech.py`.

    python benchmarks/prompt_lines.py $TRANSDUCE_DATA OUT

writes OUT/lines.txt and OUT/languages.txt, side by side: for each language 5,000 lines of everyday
and software text (English and French of Tatoeba and of messages, Spanish and Russian of XQuAD,
Italian of XDailyDialog; where they are few, inflected words too, and lines more than once), the
training prompts three times, and numbers, days, months and letters four times.  Held-out prompts
are not read.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import string
from collections.abc import Iterable, Iterator
from pathlib import Path

from transduce.data.labelled import SquadFile, read_questions
from transduce.data.text_files import read_lines

VOICES = {"en": "en-us", "es": "es-419", "fr": "fr", "it": "it", "ru": "ru"}
"""Language of a voice of espeak-ng for each language of the prompts."""
WORDS = {
    "en": """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
        fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty
        ninety hundred thousand million Monday Tuesday Wednesday Thursday Friday Saturday Sunday
        January February March April May June July August September October November December""",
    "es": """cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce
        quince dieciséis diecisiete dieciocho diecinueve veinte treinta cuarenta cincuenta sesenta
        setenta ochenta noventa cien mil millón lunes martes miércoles jueves viernes sábado domingo
        enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre
        diciembre""",
    "fr": """zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze
        seize dix-sept dix-huit dix-neuf vingt trente quarante cinquante soixante soixante-dix
        quatre-vingt quatre-vingt-dix cent mille million lundi mardi mercredi jeudi vendredi samedi
        dimanche janvier février mars avril mai juin juillet août septembre octobre novembre
        décembre""",
    "it": """zero uno due tre quattro cinque sei sette otto nove dieci undici dodici tredici
        quattordici quindici sedici diciassette diciotto diciannove venti trenta quaranta cinquanta
        sessanta settanta ottanta novanta cento mille milione lunedì martedì mercoledì giovedì
        venerdì sabato domenica gennaio febbraio marzo aprile maggio giugno luglio agosto settembre
        ottobre novembre dicembre""",
    "ru": """ноль один два три четыре пять шесть семь восемь девять десять одиннадцать двенадцать
        тринадцать четырнадцать пятнадцать шестнадцать семнадцать восемнадцать девятнадцать двадцать
        тридцать сорок пятьдесят шестьдесят семьдесят восемьдесят девяносто сто тысяча миллион
        понедельник вторник среда четверг пятница суббота воскресенье январь февраль март апрель май
        июнь июль август сентябрь октябрь ноябрь декабрь""",
}
LATIN = ("en", "es", "fr", "it")
SENTENCES, FORMS, OF_PROMPTS, OF_WORDS = 5000, 1500, 3, 4


def clauses(texts: Iterable[str]) -> Iterator[str]:
    """Parts of texts between marks, of 4 to 70 letters, without figures and brackets."""
    for text in texts:
        for part in re.split(r"(?<=[.,;:?!])\s+", text.strip()):
            if 4 <= len(part) <= 70 and not re.search(r"[^\w\s.,;:?!\'’-]|[\d_]", part):
                yield part


def questions(path: Path) -> Iterator[str]:
    """Contexts and questions of a file in SQuAD's format."""
    result = read_questions(SquadFile(path=path), path.parent)
    for context, asked in itertools.groupby(result, key=lambda one: one.context):
        yield context.lstrip("\ufeff")
        yield from (one.question for one in asked)


def sentences(data: Path, language: str, chance: random.Random) -> list[str]:
    """Lines of the language's data sets, as many as there are."""
    match language:
        case "en" | "fr":
            pairs = ("tatoeba-fr-en", "software-fr-en")
            files = [list(read_lines(data / name / f"train.{language}.gz")) for name in pairs]
            some = [chance.sample(file, SENTENCES) for file in files]
            return list(clauses(itertools.chain(*some)))
        case "it":
            dialogues = read_lines(data / "xdailydialog" / "dev.jsonl.gz")
            return list(clauses(turn for line in dialogues for turn in json.loads(line)["it"]))
        case _:
            forms = read_lines(data / "sigmorphon2023-inflection" / "train.tsv.gz")
            code = {"es": "spa", "ru": "rus"}[language]
            words = [form.split("\t")[3] for form in forms if form.startswith(f"{code}\t")]
            result = clauses(questions(data / "xquad" / f"xquad.{language}.json.gz"))
            return [*result, *chance.sample(words, FORMS)]


def prompts(data: Path, language: str) -> Iterator[str]:
    """Texts of the training prompts, without those that hold remarks."""
    for line in read_lines(data / "asterisk-prompts" / "manifest.jsonl"):
        record = json.loads(line)
        wanted = record["lang"] == language and record["split"] == "train"
        if wanted and record.get("speech", True) and not record["annotated"]:
            yield record["text"]


def main() -> None:
    """Write the lines and their languages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", type=Path, help="directory of the data sets")
    parser.add_argument("out", type=Path, help="directory to write to")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    chance = random.Random(1)
    spoken, languages = [], []
    for language, voice in VOICES.items():
        text = sentences(options.data, language, chance)
        chance.shuffle(text)
        words = WORDS[language].split() + list(string.ascii_lowercase) * (language in LATIN)
        lines = list(itertools.islice(itertools.cycle(text), SENTENCES))
        lines += [*prompts(options.data, language)] * OF_PROMPTS + words * OF_WORDS
        spoken += lines
        languages += [voice] * len(lines)
        print(f"{language}: {len(set(lines))} of {len(lines)} lines different")
    for name, column in (("lines.txt", spoken), ("languages.txt", languages)):
        (options.out / name).write_text("".join(f"{line}\n" for line in column), encoding="utf-8")


if __name__ == "__main__":
    main()
