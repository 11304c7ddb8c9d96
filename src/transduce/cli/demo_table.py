"""The demos as rows of a table: recipe, data, scores, examples and texts of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from transduce.cli.demo_data import COPY_LENGTH, lines_to_copy, read_dictionary, read_phrases


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
