"""Starting from another run: what is copied, frozen, slowed down, adapted, and merged again."""

import logging
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import transduce
from helpers.tiny_run import records, reversal_pairs, tiny_settings, write_pairs
from transduce import RunError, SettingError
from transduce.cli.merge import merge
from transduce.config import apply_overrides, parse
from transduce.models.encoder_only import EncoderOnlyConfig, build_text_encoder
from transduce.nn.heads.label import LabelHead
from transduce.nn.transformer import TransformerConfig
from transduce.sequence import Padded
from transduce.tasks.recipe import TranslationRecipe
from transduce.training.averaging import MovingAverage
from transduce.training.checkpoints import (
    Progress,
    checkpoint_path,
    load_checkpoint,
    save_checkpoint,
)
from transduce.training.config import AdamConfig, TrainingConfig
from transduce.training.fine_tuning import (
    ADAPTER_FILE,
    FineTuneConfig,
    LoraConfig,
    LowRankLinear,
    add_low_rank_updates,
    apply_adapter,
    learning_rate_scales,
    remove_low_rank_updates,
    start_from,
)
from transduce.training.log import TrainingLog
from transduce.training.optimizer import build_optimizer
from transduce.training.trainer import InterruptedTraining
from transduce.training.weights import (
    average,
    merged,
    read_tensors,
    weights_of,
    write_tensors,
)

Tensors = dict[str, torch.Tensor]
LORA = ("fine_tune.lora={rank=2}",)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("data") / "a.tsv", reversal_pairs(300))


@pytest.fixture(scope="module")
def base(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that knows something."""
    settings = tiny_settings(
        data, "training.steps=150", "training.validate_every=150", "training.schedule.peak=1e-2"
    )
    return transduce.train(settings, tmp_path_factory.mktemp("runs") / "base")[0]


@pytest.fixture(scope="module")
def adapted(base: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tune(base, data, tmp_path_factory.mktemp("adapted") / "run", *LORA, "training.steps=1")


def tune(base: Path, data: Path, run: Path, *overrides: str, resume: bool = False) -> Path:
    """Train from `base`; model and text are left for it to say."""
    settings = tiny_settings(data)
    del settings["model"], settings["text"]
    settings = apply_overrides(settings, [f"fine_tune.run={base}", *overrides])
    return transduce.train(settings, run, resume=resume)[0]


def weights(run: Path) -> Tensors:
    return read_tensors(run / "weights.safetensors")


def changed(a: Tensors, b: Tensors) -> set[str]:
    assert a.keys() == b.keys()
    return {name for name in a if not torch.equal(a[name], b[name])}


def classifier(n_labels: int = 3, d_ff: int = 32, vocabulary: int = 11) -> nn.Module:
    torch.manual_seed(n_labels)
    stack = TransformerConfig(n_layers=2, n_heads=2, d_ff=d_ff, positions="learned")
    config = EncoderOnlyConfig(d_model=16, encoder=stack)
    return build_text_encoder(config, vocabulary, LabelHead(16, n_labels, "mean", True, 0.0)).eval()


def saved(model: nn.Module, path: Path) -> Path:
    path.mkdir()
    write_tensors(path / "weights.safetensors", weights_of(model))
    return path


def answers(model: nn.Module) -> torch.Tensor:
    ids = torch.arange(12).view(3, 4) % 11
    with torch.inference_mode():
        return model(Padded.unpadded(ids))


def begin(model: nn.Module, base: Path, run: Path, **changes: Any) -> Any:
    run.mkdir(exist_ok=True)
    return start_from(model, FineTuneConfig(run=str(base), **changes), run, resuming=False)


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
        assert said.endswith("new here: head.output.bias, head.output.weight") and "\n" not in said

    def test_weights_without_a_place_are_said(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = saved(classifier(), tmp_path / "base")
        more = {**weights(path), "decoder.norm.weight": torch.ones(3)}
        write_tensors(path / "weights.safetensors", more)
        with caplog.at_level(logging.INFO, "transduce"):
            begin(classifier(), path, tmp_path / "run")
        assert caplog.messages[0].endswith("not used: decoder.norm.weight")

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
        with pytest.raises(RunError, match="not a whole safetensors file"):
            begin(classifier(), path, tmp_path / "run")

    def test_run_may_hold_variables(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        other, model = classifier(3), classifier(3)
        saved(other, tmp_path / "base")
        monkeypatch.setenv("RUNS", str(tmp_path))
        config = parse(FineTuneConfig, {"run": "$RUNS/base"})
        assert config.run == str(tmp_path / "base")
        begin(model, Path("${RUNS}/base"), tmp_path / "run")
        with pytest.raises(SettingError, match="variable NOWHERE, which is not set"):
            parse(FineTuneConfig, {"run": "$NOWHERE/base"})


class TestFreezing:
    def test_frozen_weights_stay_bit_by_bit(self, base: Path, data: Path, tmp_path: Path) -> None:
        frozen = "fine_tune.freeze=['encoder.*', '*.embedding.weight']"
        optimizer = "training.optimizer.weight_decay=0.1"
        run = tune(base, data, tmp_path / "run", frozen, optimizer)
        moved = changed(weights(base), weights(run))
        assert moved == {name for name in weights(base) if name.startswith("decoder.")}

    def test_by_any_name_of_a_tied_matrix(self, base: Path, data: Path, tmp_path: Path) -> None:
        run = tune(base, data, tmp_path / "run", "fine_tune.freeze=['head.weight']")
        assert set(weights(base)) - changed(weights(base), weights(run)) == {
            "target.embedding.weight"
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
            ("speech*", "matches nothing here$"),
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
        from transduce.models.encoder_decoder import EncoderDecoderConfig, build_encoder_decoder

        settings = {
            "d_model": 16,
            "tie": "two-way",
            "encoder": {"kind": "recurrent", "n_layers": 3},
            "decoder": {"n_layers": 1, "n_heads": 2, "d_ff": 16, "norm_order": "pre"},
        }
        config = parse(EncoderDecoderConfig, settings)
        scales = learning_rate_scales(build_encoder_decoder(config, 9, 9, joint=False), 0.5)
        expected = {
            "source.embedding.weight": 1 / 16,
            "encoder.layers.cells.weight_ih_l0": 1 / 8,
            "encoder.layers.cells.bias_hh_l2_reverse": 1 / 2,
            "target.embedding.weight": 1 / 4,
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


def learn(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    ids = torch.arange(12).view(3, 4) % 11
    scores: torch.Tensor = model(Padded.unpadded(ids))
    loss = nn.functional.cross_entropy(scores, torch.tensor([0, 1, 2]))
    torch.autograd.backward(loss)
    optimizer.step()


class TestLora:
    def test_begins_as_the_base_exactly(self, tmp_path: Path) -> None:
        model, plain = classifier(), classifier()
        path = saved(plain, tmp_path / "base")
        begin(model, path, tmp_path / "run", lora=LoraConfig(rank=3))
        adapted = {n for n, m in model.named_modules() if isinstance(m, LowRankLinear)}
        parts = ("query_key_value", "output")
        assert adapted == {
            f"encoder.layers.{i}.self_attention.{part}" for i in range(2) for part in parts
        }
        assert torch.equal(answers(model), answers(plain))
        trained = {n for n, p in model.named_parameters() if p.requires_grad}
        assert trained == {f"{name}.lora_{part}" for name in adapted for part in "ab"}

    def test_random_numbers_go_to_layers_in_the_models_order(self) -> None:
        model = classifier()
        torch.manual_seed(5)
        add_low_rank_updates(model, LoraConfig(rank=2))
        torch.manual_seed(5)
        adapted = [m for m in model.modules() if isinstance(m, LowRankLinear)]
        assert len(adapted) == 4
        for module in adapted:
            n_in = module.in_features
            assert torch.equal(module.lora_a, torch.randn(2, n_in) * n_in**-0.5)

    def test_is_the_formula(self) -> None:
        linear = nn.Linear(5, 4).double()
        adapted = LowRankLinear(linear, LoraConfig(rank=2, alpha=6.0))
        with torch.no_grad():
            adapted.lora_b.normal_()
        x = torch.randn(3, 2, 5, dtype=torch.float64)
        matrix = linear.weight + 3.0 * adapted.lora_b @ adapted.lora_a
        wanted = x @ matrix.T + linear.bias
        torch.testing.assert_close(adapted(x), wanted)
        parts = {f"it.{name}": tensor for name, tensor in weights_of(adapted).items()}
        plain = merged(parts)
        assert set(plain) == {"it.weight", "it.bias"}
        torch.testing.assert_close(plain["it.weight"], matrix)

    def test_layers_without_bias_and_shared_layers(self, tmp_path: Path) -> None:
        shared = nn.Linear(4, 4, bias=False)
        inner = nn.Sequential(shared)
        model = nn.Sequential(shared, inner)
        begin(
            model,
            saved(model, tmp_path / "base"),
            tmp_path / "run",
            lora=LoraConfig(targets=("*",)),
        )
        assert model[0] is inner[0] and isinstance(model[0], LowRankLinear)
        remove_low_rank_updates(model)
        assert type(model[0]) is nn.Linear and model[0].weight is shared.weight
        assert model[0] is inner[0] and model[0].bias is None

    def test_tied_matrix_is_refused(self, tmp_path: Path) -> None:
        class Tied(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embedding = nn.Embedding(4, 3)
                self.output = nn.Linear(3, 4)
                self.output.weight = self.embedding.weight

        path = saved(Tied(), tmp_path / "base")
        with pytest.raises(SettingError, match="'output' is also another layer's"):
            begin(Tied(), path, tmp_path / "run", lora=LoraConfig(targets=("output",)))

    def test_frozen_layers_get_none(self, tmp_path: Path) -> None:
        path, model = saved(classifier(), tmp_path / "base"), classifier()
        begin(model, path, tmp_path / "run", lora=LoraConfig(), freeze=("encoder.layers.0.*",))
        adapted = [n for n, m in model.named_modules() if isinstance(m, LowRankLinear)]
        assert len(adapted) == 2 and all(n.startswith("encoder.layers.1.") for n in adapted)
        with pytest.raises(SettingError, match=r"names every layer that fine_tune\.lora"):
            begin(classifier(), path, tmp_path / "run", lora=LoraConfig(), freeze=("encoder.*",))

    def test_pattern_without_a_match(self, tmp_path: Path) -> None:
        path = saved(classifier(), tmp_path / "base")
        wrong = LoraConfig(targets=("*attention.*", "*query*value", "*embedding*"))
        with pytest.raises(SettingError, match=r"lora\.targets: '\*embedding\*' matches nothing"):
            begin(classifier(), path, tmp_path / "run", lora=wrong)

    def test_new_head_is_trained_whole(self, tmp_path: Path) -> None:
        base, model = classifier(3), classifier(5)
        path = saved(base, tmp_path / "base")
        adapter = begin(model, path, tmp_path / "run", lora=LoraConfig(rank=2))
        trained = {n for n, p in model.named_parameters() if p.requires_grad}
        assert {n for n in trained if "lora" not in n} == {"head.output.weight", "head.output.bias"}
        optimizer = build_optimizer(model, TrainingConfig())
        for _ in range(3):
            learn(model, optimizer)
        adapter.write(tmp_path / "run", weights_of(model))
        found = apply_adapter(weights(path), tmp_path / "run" / ADAPTER_FILE)
        assert not changed(found, merged(weights_of(model)))
        plain = classifier(5)
        plain.load_state_dict(found)
        torch.testing.assert_close(answers(plain), answers(model), rtol=0, atol=1e-6)

    def test_old_head_is_left_out(self, tmp_path: Path) -> None:
        path = saved(classifier(3), tmp_path / "base")
        more = {**weights(path), "head.dense.weight": torch.ones(3), "x": torch.ones(())}
        write_tensors(path / "weights.safetensors", more)
        model = classifier(3)
        begin(model, path, tmp_path / "run", lora=LoraConfig())
        found = apply_adapter(weights(path), tmp_path / "run" / ADAPTER_FILE)
        assert set(found) == set(weights_of(classifier(3)))

    def test_narrow_base(self, tmp_path: Path) -> None:
        """A base stored in 16 bits is widened before the update is added, as in training."""
        path = saved(classifier().half(), tmp_path / "base")
        model = classifier()
        adapter = begin(model, path, tmp_path / "run", lora=LoraConfig(rank=2))
        learn(model, build_optimizer(model, TrainingConfig()))
        adapter.write(tmp_path / "run", weights_of(model))
        found = apply_adapter(weights(path), tmp_path / "run" / ADAPTER_FILE)
        assert not changed(found, merged(weights_of(model)))

    def test_trains_and_merges(self, base: Path, data: Path, tmp_path: Path) -> None:
        run = tune(base, data, tmp_path / "run", *LORA, "training.ema=0.5")
        moved = changed(weights(base), weights(run))
        assert moved == {n for n in weights(base) if "attention." in n and n.endswith("weight")}
        losses = [record["loss"] for record in records(run, "validation")]
        assert transduce.load(run).info()["validation"]["loss"] == min(losses)
        merge(base, run, tmp_path / "merged")
        assert not changed(weights(tmp_path / "merged"), weights(run))
        texts = ["abc", "edcba", "aa"]
        one, two = transduce.load(run), transduce.load(tmp_path / "merged")
        assert [t.text for t in one(texts)] == [t.text for t in two(texts)]
        pairs = [(text, " ".join(text[::-1])) for text in texts]
        assert list(one.score(pairs)) == pytest.approx(list(two.score(pairs)), abs=1e-6)

    def test_what_is_served_is_what_was_validated(
        self, base: Path, data: Path, tmp_path: Path
    ) -> None:
        run = tune(base, data, tmp_path / "run", *LORA)
        best = min(record["loss"] for record in records(run, "validation"))
        recipe = transduce.load(run).recipe
        task = loaded_task(recipe, run)
        assert task.validate()["loss"] == pytest.approx(best, abs=1e-6)

    def test_averages_of_checkpoints(self, base: Path, data: Path, tmp_path: Path) -> None:
        run = tune(base, data, tmp_path / "run", *LORA, "training.average_last=2")
        found = [read_tensors(checkpoint_path(run, step) / "model.safetensors") for step in (6, 12)]
        mean = {n: (found[0][n].double() + found[1][n].double()).float() / 2 for n in found[0]}
        for name, tensor in merged(mean).items():
            torch.testing.assert_close(weights(run)[name], tensor)
        merge(base, run, tmp_path / "merged")
        assert not changed(weights(tmp_path / "merged"), weights(run))
        # From the command line runs of different bases can be averaged: the served weights are.
        outside = average(found)
        assert outside.keys() == weights(base).keys()
        name = "decoder.layers.0.cross_attention.query.weight"
        parts = [merged(part)[name] for part in found]
        torch.testing.assert_close(outside[name], (parts[0] + parts[1]) / 2)

    def test_adapter_is_small(self, data: Path, tmp_path: Path) -> None:
        wide = ("model.d_model=64", "training.steps=1", "model.encoder.d_ff=256")
        big, _ = transduce.train(tiny_settings(data, *wide), tmp_path / "base")
        run = tune(big, data, tmp_path / "run", *LORA, "training.steps=1")
        sizes = [(run / name).stat().st_size for name in (ADAPTER_FILE, "weights.safetensors")]
        assert sizes[0] < 0.1 * sizes[1]

    @pytest.mark.parametrize("recipe", ["as it was", "of the run"])
    def test_resume_is_exact_and_needs_no_base(
        self,
        base: Path,
        data: Path,
        tmp_path: Path,
        recipe: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        copy = Path(shutil.copytree(base, tmp_path / "base"))
        settings = (
            *LORA,
            "training.ema=0.9",
            "fine_tune.layer_decay=0.7",
            "model.decoder.dropout=0.2",
        )
        full = apply_overrides(tiny_settings(data), [f"fine_tune.run={copy}", *settings])
        whole, _ = transduce.train(full, tmp_path / "whole")
        interrupt_at(4, monkeypatch)
        with pytest.raises(InterruptedTraining):
            transduce.train(full, tmp_path / "run")
        monkeypatch.undo()
        shutil.rmtree(copy)
        how = full if recipe == "as it was" else tmp_path / "run"
        run, _ = transduce.train(how, tmp_path / "run", resume=True)
        assert not changed(weights(whole), weights(run))
        assert not changed(read_tensors(whole / ADAPTER_FILE), read_tensors(run / ADAPTER_FILE))
        for name in ("model", "ema", "optimizer"):
            files = [checkpoint_path(one, 12) / f"{name}.safetensors" for one in (whole, run)]
            assert not changed(*(read_tensors(file) for file in files)), name
        assert adapter_head(whole) == adapter_head(run)


def adapter_head(run: Path) -> dict[str, str]:
    from transduce.training.weights import read_with_metadata

    return read_with_metadata(run / ADAPTER_FILE)[1]


def translation_recipe(run: Path) -> TranslationRecipe:
    recipe = transduce.load(run).recipe
    assert isinstance(recipe, TranslationRecipe)
    return recipe


def loaded_task(recipe: Any, run: Path) -> Any:
    from transduce.tasks.translation import TranslationTraining, load_translation
    from transduce.tasks.translation_data import encoded_pairs

    translator = load_translation(recipe, run, "cpu")
    data = encoded_pairs(recipe, translator.source, translator.target, run.parent / ".cache")
    return TranslationTraining(recipe, translator, data)


def interrupt_at(step: int, patch: pytest.MonkeyPatch) -> None:
    """Have a SIGTERM arrive during that step."""
    show = TrainingLog.training

    def show_and_signal(log: TrainingLog, record: Any, *rest: float) -> None:
        show(log, record, *rest)
        if record["step"] == step:
            signal.raise_signal(signal.SIGTERM)

    patch.setattr(TrainingLog, "training", show_and_signal)


class TestMergeMistakes:
    def refused(self, base: Path, adapter: Path, output: Path, said: str) -> None:
        with pytest.raises(RunError, match=said) as caught:
            merge(base, adapter, output)
        assert "\n" not in str(caught.value)

    def test_another_base(self, adapted: Path, data: Path, tmp_path: Path) -> None:
        for i, change in enumerate(("seed=2", "model.encoder.n_layers=2", "model.d_model=32")):
            settings = tiny_settings(data, "training.steps=1", change)
            other, _ = transduce.train(settings, tmp_path / f"other{i}")
            self.refused(other, adapted, tmp_path / "out", "on top of other weights than these")
        assert not (tmp_path / "out").exists()

    def test_runs_that_are_none(self, base: Path, adapted: Path, tmp_path: Path) -> None:
        self.refused(base, base, tmp_path / "out", "has no adapter.safetensors")
        self.refused(tmp_path / "none", adapted, tmp_path / "out", "no such file")
        self.refused(base, tmp_path / "none", tmp_path / "out", "is not a directory")
        self.refused(base, adapted, base, "exists; give another OUTPUT")

    def test_damaged_adapters(self, base: Path, adapted: Path, tmp_path: Path) -> None:
        copy = Path(shutil.copytree(adapted, tmp_path / "copy"))
        file = copy / ADAPTER_FILE
        tensors, head = read_tensors(file), adapter_head(copy)
        write_tensors(file, tensors)
        self.refused(base, copy, tmp_path / "out", "is not an adapter")
        name = next(name for name in tensors if name.endswith("lora_b"))
        write_tensors(file, {n: t for n, t in tensors.items() if n != name}, head)
        self.refused(base, copy, tmp_path / "out", "is damaged")
        write_tensors(file, {**tensors, name: torch.zeros(3, 3)}, head)
        self.refused(base, copy, tmp_path / "out", "is damaged")
        file.write_bytes(file.read_bytes()[:50])
        self.refused(base, copy, tmp_path / "out", "not a whole safetensors file")

    def test_only_the_adapter_need_be_kept(self, base: Path, adapted: Path, tmp_path: Path) -> None:
        light = tmp_path / "light"
        light.mkdir()
        for pattern in ("recipe.toml", "*tokenizer*", ADAPTER_FILE):
            for file in adapted.glob(pattern):
                shutil.copy(file, light)
        merge(base, light, tmp_path / "out")
        assert not changed(weights(tmp_path / "out"), weights(adapted))


class TestTranslation:
    def test_beats_training_from_scratch(self, base: Path, data: Path, tmp_path: Path) -> None:
        """On words of another distribution, at equal steps."""
        other = write_pairs(tmp_path / "b.tsv", reversal_pairs(300, longest=8, seed=5))
        steps = ("training.steps=30", "training.validate_every=30")
        tuned = tune(base, other, tmp_path / "tuned", *steps)
        scratch, _ = transduce.train(tiny_settings(other, *steps), tmp_path / "scratch")
        adapted = tune(base, other, tmp_path / "adapted", *steps, *LORA)
        losses = [records(r, "validation")[-1]["loss"] for r in (tuned, adapted, scratch)]
        assert losses[0] < losses[1] < 0.8 * losses[2]

    def test_model_text_and_vocabulary_are_the_bases(
        self, base: Path, data: Path, tmp_path: Path
    ) -> None:
        other = write_pairs(tmp_path / "b.tsv", reversal_pairs(60, letters="edcxyz"))
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

    @pytest.mark.parametrize(
        ("changes", "kind", "said"),
        [
            (["text.source.lowercase=true"], SettingError, "text is not as in"),
            (
                ["model.d_model=32"],
                RunError,
                r"embedding.weight' has shape \(\d+, 16\), but this model's is",
            ),
            (["fine_tune.run=nowhere"], RunError, "nowhere"),
            (["fine_tune.layer_decay=0"], SettingError, "fine_tune.layer_decay"),
            (["fine_tune.layer_decay=1.5"], SettingError, "fine_tune.layer_decay"),
            (["fine_tune.lora.rank=0"], SettingError, "fine_tune.lora.rank"),
            (["fine_tune.lora.ranks=2"], SettingError, "did you mean 'rank'"),
            (["fine_tune.lora.targets=[]"], SettingError, "fine_tune.lora.targets"),
            (["fine_tune.freeze='x'"], SettingError, "fine_tune.freeze"),
            (["fine_tune={}"], SettingError, "fine_tune.run is missing"),
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
