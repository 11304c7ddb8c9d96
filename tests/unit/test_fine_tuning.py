"""Starting from another run: what is copied, frozen, and slowed down."""

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import transduce
from helpers.fine_tuned import (
    LORA,
    begin,
    changed,
    classifier,
    learn,
    saved,
    tune,
    weights,
)
from helpers.tiny_run import records, reversal_pairs, tiny_settings, write_tsv
from transduce import RunError, SettingError
from transduce.settings.sections import apply_overrides, load_toml, parse, to_toml
from transduce.tasks.recipe import with_base_run
from transduce.tasks.translation.recipe import TranslationRecipe
from transduce.training.checkpoints import (
    Progress,
    checkpoint_path,
    load_checkpoint,
    save_checkpoint,
)
from transduce.training.config import AdamConfig, FineTuneConfig, TrainingConfig
from transduce.training.fine_tuning import learning_rate_scales
from transduce.training.optimizer import build_optimizer
from transduce.training.weights import MovingAverage, weights_of, write_tensors


def translation_recipe(run: Path) -> TranslationRecipe:
    recipe = transduce.load(run).recipe
    assert isinstance(recipe, TranslationRecipe)
    return recipe


class TestStart:
    def test_everything_of_the_same_model_is_copied(self, tmp_path: Path) -> None:
        other, model = classifier(), classifier()
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.normal_()
        assert begin(model, saved(other, tmp_path / "base"), tmp_path / "run") is None
        assert not changed(weights_of(model), weights_of(other))
        assert all(p.requires_grad for p in model.parameters())

    def test_new_head_is_said_and_stays_its_own(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        other, model = classifier(3), classifier(5)
        own = weights_of(model)["head.output.weight"].clone()
        path = saved(other, tmp_path / "base")
        with caplog.at_level(logging.INFO, "transduce"):
            begin(model, path, tmp_path / "run")
        assert torch.equal(weights_of(model)["head.output.weight"], own)
        assert torch.equal(
            weights_of(model)["head.hidden.weight"], weights_of(other)["head.hidden.weight"]
        )
        [said] = caplog.messages
        assert (
            said.endswith("newly initialised: head.output.bias, head.output.weight")
            and "\n" not in said
        )

    def test_weights_without_a_place_are_said(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = saved(classifier(), tmp_path / "base")
        more = {**weights(path), "decoder.norm.weight": torch.ones(3)}
        write_tensors(path / "weights.safetensors", more)
        with caplog.at_level(logging.INFO, "transduce"):
            begin(classifier(), path, tmp_path / "run")
        assert caplog.messages[0].endswith("unused: decoder.norm.weight")

    @pytest.mark.parametrize(
        ("other", "name", "shapes"),
        [
            (classifier(d_ff=64), "encoder.layers.0.feed_forward.inner", ("(64,", "(32,")),
            (classifier(vocabulary=12), "front_end.embedding.weight", ("(12, 16)", "(11, 16)")),
        ],
    )
    def test_other_shapes(
        self, tmp_path: Path, other: nn.Module, name: str, shapes: tuple[str, str]
    ) -> None:
        model = classifier()
        before = {n: t.clone() for n, t in weights_of(model).items()}
        with pytest.raises(RunError) as caught:
            begin(model, saved(other, tmp_path / "base"), tmp_path / "run")
        said = str(caught.value)
        assert name in said and all(shape in said for shape in shapes) and "\n" not in said
        assert not changed(before, weights_of(model))

    def test_nothing_in_common(self, tmp_path: Path) -> None:
        with pytest.raises(RunError, match=r"no weights for this model.*front_end.*'0.bias'"):
            path = saved(nn.Sequential(nn.Linear(2, 2)), tmp_path / "base")
            begin(classifier(), path, tmp_path / "run")

    def test_missing_and_damaged_runs(self, tmp_path: Path) -> None:
        with pytest.raises(RunError, match="no such file"):
            begin(classifier(), tmp_path / "none", tmp_path / "run")
        path = saved(classifier(), tmp_path / "base")
        (path / "weights.safetensors").write_bytes(b"junk")
        with pytest.raises(RunError, match="not a complete safetensors file"):
            begin(classifier(), path, tmp_path / "run")

    def test_run_may_hold_variables(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RUNS", str(tmp_path))
        config = parse(FineTuneConfig, {"run": "$RUNS/base"})
        assert config.run == str(tmp_path / "base")
        with pytest.raises(SettingError, match="variable NOWHERE is not set"):
            parse(FineTuneConfig, {"run": "$NOWHERE/base"})


class TestFreezing:
    @pytest.mark.system
    def test_frozen_weights_stay_bit_by_bit(self, base: Path, data: Path, tmp_path: Path) -> None:
        frozen = "fine_tune.freeze=['encoder.*', '*.embedding.weight']"
        optimizer = "training.optimizer.weight_decay=0.1"
        run = tune(base, data, tmp_path / "run", frozen, optimizer)
        moved = changed(weights(base), weights(run))
        assert moved == {name for name in weights(base) if name.startswith("decoder.")}

    def test_by_any_name_of_a_tied_matrix(self, base: Path, data: Path, tmp_path: Path) -> None:
        run = tune(base, data, tmp_path / "run", "fine_tune.freeze=['head.weight']")
        assert set(weights(base)) - changed(weights(base), weights(run)) == {
            "target_front_end.embedding.weight"
        }

    def test_moving_average_of_frozen_weights(self, tmp_path: Path) -> None:
        model = classifier()
        begin(model, saved(model, tmp_path / "base"), tmp_path / "run", freeze=("encoder.*",))
        ema = MovingAverage(model, 0.9)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.add_(1)
        before = {n: t.clone() for n, t in ema.weights.items()}
        ema.update(model, 5)
        moved = changed(before, ema.weights)
        assert moved == {n for n, p in model.named_parameters() if p.requires_grad}

    @pytest.mark.parametrize(
        ("pattern", "hint"),
        [
            ("encoder", r"did you mean 'encoder\.\*'"),
            ("front_end.embeding.weight", "did you mean 'front_end.embedding.weight'"),
            ("encoder.layer.0.*", r"did you mean 'encoder\.layers\.0\.\*'\?$"),
            ("encodr.*", r"did you mean 'encoder\.\*'\?$"),
            ("encodr.layer.*.norm*.weigt", r"did you mean 'encoder\.layers\.\*\.norm.*\.weight'"),
            ("*.embeding.*", r"did you mean '\*\.embedding\.\*'"),
            ("speech*", "matches no weights; names begin with encoder, front_end, head$"),
        ],
    )
    def test_pattern_without_a_match(self, tmp_path: Path, pattern: str, hint: str) -> None:
        path = saved(classifier(), tmp_path / "base")
        with pytest.raises(SettingError, match=rf"fine_tune.freeze: .*{hint}"):
            begin(classifier(), path, tmp_path / "run", freeze=(pattern,))

    def test_everything(self, tmp_path: Path) -> None:
        path = saved(classifier(), tmp_path / "base")
        with pytest.raises(SettingError, match="leaves nothing to train"):
            begin(classifier(), path, tmp_path / "run", freeze=("*",))


class TestLayerDecay:
    def test_scales(self) -> None:
        scales = learning_rate_scales(classifier(), 0.5)
        expected = {
            "front_end.embedding.weight": 0.125,
            "encoder.positions.table.weight": 0.125,
            "encoder.layers.0.self_attention.output.bias": 0.25,
            "encoder.layers.1.feed_forward.inner.weight": 0.5,
            "head.hidden.weight": 1.0,
            "head.output.weight": 1.0,
        }
        assert {name: scales[name] for name in expected} == expected
        assert set(scales) == {name for name, _ in classifier().named_parameters()}

    def test_stacks_of_an_encoder_decoder_are_counted_by_themselves(self) -> None:
        from transduce.models.config import EncoderDecoderConfig
        from transduce.models.encoder_decoder import build_encoder_decoder

        settings = {
            "d_model": 16,
            "tie": "two-way",
            "encoder": {"kind": "recurrent", "n_layers": 3},
            "decoder": {"n_layers": 1, "n_heads": 2, "d_ff": 16, "norm_order": "pre"},
        }
        config = parse(EncoderDecoderConfig, settings)
        scales = learning_rate_scales(build_encoder_decoder(config, 9, 9, joint=False), 0.5)
        expected = {
            "front_end.embedding.weight": 1 / 16,
            "encoder.layers.cells.weight_ih_l0": 1 / 8,
            "encoder.layers.cells.bias_hh_l2_reverse": 1 / 2,
            "target_front_end.embedding.weight": 1 / 4,
            "decoder.layers.0.cross_attention.query.weight": 1 / 2,
            "decoder.norm.weight": 1.0,
        }
        assert {name: scales[name] for name in expected} == expected

    def test_optimizer_and_rates(
        self, base: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from transduce.training import trainer as module

        made: list[tuple[nn.Module, torch.optim.Optimizer]] = []

        def build(model: nn.Module, *rest: Any) -> torch.optim.Optimizer:
            made.append((model, build_optimizer(model, *rest)))
            return made[-1][1]

        monkeypatch.setattr(module, "build_optimizer", build)
        lora = ("fine_tune.layer_decay=0.5", "training.steps=2")
        tune(base, data, tmp_path / "run", *lora)
        [(model, optimizer)] = made
        rates = {id(p): g["lr"] for g in optimizer.param_groups for p in g["params"]}
        scales = learning_rate_scales(model, 0.5)
        assert len(set(scales.values())) > 2
        for name, parameter in model.named_parameters():
            assert rates[id(parameter)] == pytest.approx(3e-3 * scales[name]), name

    def test_without_it_the_optimizer_is_as_it_always_was(self, tmp_path: Path) -> None:
        """Step by step the same, and a checkpoint from before layers were told apart loads."""
        old_model, model = classifier(), classifier()
        adam = TrainingConfig(optimizer=AdamConfig(weight_decay=0.1))
        embeddings = [m.weight for m in old_model.modules() if isinstance(m, nn.Embedding)]
        matrices = [
            p for p in old_model.parameters() if p.dim() > 1 and not any(p is e for e in embeddings)
        ]
        rest = [p for p in old_model.parameters() if not any(p is m for m in matrices)]
        old = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
            lr=0.0,
            betas=(0.9, 0.98),
            eps=1e-9,
            fused=True,
        )
        new = build_optimizer(model, adam)
        assert [g["scale"] for g in new.param_groups] == [1.0, 1.0]
        for _ in range(3):
            for one, optimizer in ((old_model, old), (model, new)):
                learn(one, optimizer)
        assert not changed(weights_of(old_model), weights_of(model))
        save_checkpoint(tmp_path, Progress(step=3), old_model, old, None)
        model = classifier()
        new = build_optimizer(model, adam)
        load_checkpoint(checkpoint_path(tmp_path, 3), model, new, None)
        for one, optimizer in ((old_model, old), (model, new)):
            learn(one, optimizer)
        assert not changed(weights_of(old_model), weights_of(model))


class TestTranslation:
    @pytest.mark.system
    def test_beats_training_from_scratch(self, base: Path, data: Path, tmp_path: Path) -> None:
        other = write_tsv(tmp_path / "b.tsv", reversal_pairs(300, longest=8, seed=5))
        steps = ("training.steps=30", "training.validate_every=30")
        tuned = tune(base, other, tmp_path / "tuned", *steps)
        scratch, _ = transduce.train(tiny_settings(other, *steps), tmp_path / "scratch")
        adapted = tune(base, other, tmp_path / "adapted", *steps, *LORA)
        losses = [records(r, "validation")[-1]["loss"] for r in (tuned, adapted, scratch)]
        assert losses[0] < losses[1] < 0.8 * losses[2]

    def test_model_text_and_vocabulary_are_the_bases(
        self, base: Path, data: Path, tmp_path: Path
    ) -> None:
        other = write_tsv(tmp_path / "b.tsv", reversal_pairs(60, letters="edcxyz"))
        run = tune(base, other, tmp_path / "run", "training.steps=1")
        before, after = (translation_recipe(path) for path in (base, run))
        assert (before.model, before.text) == (after.model, after.text)
        for name in ("source_tokenizer.json", "target_tokenizer.json"):
            assert (run / name).read_bytes() == (base / name).read_bytes()
        assert after.fine_tune == FineTuneConfig(run=str(base))

    def test_base_is_not_needed_to_use_the_run(
        self, base: Path, data: Path, tmp_path: Path
    ) -> None:
        copy = Path(shutil.copytree(base, tmp_path / "base"))
        run = tune(copy, data, tmp_path / "run", "training.steps=1")
        shutil.rmtree(copy)
        assert transduce.load(run)("abc").text is not None

    @pytest.mark.parametrize("section", ["model", "text", "data"])
    def test_a_base_run_that_is_damaged(
        self, base: Path, data: Path, tmp_path: Path, section: str
    ) -> None:
        copy = Path(shutil.copytree(base, tmp_path / "base"))
        broken = {**load_toml(base / "recipe.toml"), section: 5}
        (copy / "recipe.toml").write_text(to_toml(broken))
        settings = {"task": "translation", "data": tiny_settings(data)["data"]}
        with pytest.raises(RunError, match=f"recipe.toml is damaged: {section} is not a section"):
            transduce.train({**settings, "fine_tune": {"run": str(copy)}}, tmp_path / "run")

    def test_a_section_that_is_none_is_left_to_who_parses_it(self, base: Path) -> None:
        settings = {"image": 32, "fine_tune": {"run": str(base)}}
        assert with_base_run(settings, ("translation",), ("image",))["image"] == 32

    @pytest.mark.parametrize(
        ("changes", "kind", "said"),
        [
            (["text.source.lowercase=true"], SettingError, "the text section differs from"),
            (
                ["model.d_model=32"],
                RunError,
                r"embedding.weight' has shape \(\d+, 16\), expected",
            ),
            (["fine_tune.run=nowhere"], RunError, "nowhere"),
            (["fine_tune.layer_decay=0"], SettingError, "fine_tune.layer_decay"),
            (["fine_tune.layer_decay=1.5"], SettingError, "fine_tune.layer_decay"),
            (["fine_tune.lora.rank=0"], SettingError, "fine_tune.lora.rank"),
            (["fine_tune.lora.ranks=2"], SettingError, "did you mean 'rank'"),
            (["fine_tune.lora.targets=[]"], SettingError, "fine_tune.lora.targets"),
            (["fine_tune.freeze='x'"], SettingError, "fine_tune.freeze"),
            (["fine_tune={}"], SettingError, "fine_tune.run is missing"),
            (['fine_tune.run="a\\u0000b"'], SettingError, "fine_tune.run: .*NUL"),
        ],
    )
    def test_mistakes(
        self,
        base: Path,
        data: Path,
        tmp_path: Path,
        changes: Sequence[str],
        kind: type[Exception],
        said: str,
    ) -> None:
        full = {**tiny_settings(data), "fine_tune": {"run": str(base)}}
        if changes == ["fine_tune={}"]:
            full["fine_tune"] = {}
            changes = []
        with pytest.raises(kind, match=said) as caught:
            transduce.train(apply_overrides(full, changes), tmp_path / "run")
        assert "\n" not in str(caught.value)

    def test_resume_with_other_settings(self, base: Path, data: Path, tmp_path: Path) -> None:
        run = tune(base, data, tmp_path / "run", *LORA, "training.steps=1")
        with pytest.raises(SettingError, match="begun with other settings of 'fine_tune'"):
            tune(base, data, run, "fine_tune.lora={rank=3}", "training.steps=2", resume=True)
