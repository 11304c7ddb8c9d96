"""Low-rank updates: what is adapted, kept, and merged again, and adapters that do not fit."""

import shutil
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
from helpers.tiny_run import interrupt_at, records, tiny_settings
from transduce import RunError, SettingError
from transduce.cli.runs import merge
from transduce.sequence import Padded
from transduce.settings.sections import apply_overrides
from transduce.training.checkpoints import checkpoint_path
from transduce.training.config import LoraConfig, TrainingConfig
from transduce.training.fine_tuning import (
    ADAPTER_FILE,
    LowRankLinear,
    add_low_rank_updates,
    apply_adapter,
    remove_low_rank_updates,
)
from transduce.training.optimizer import build_optimizer
from transduce.training.signals import InterruptedTraining
from transduce.training.weights import average, merged, read_tensors, weights_of, write_tensors


@pytest.fixture(scope="module")
def adapted(base: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tune(base, data, tmp_path_factory.mktemp("adapted") / "run", *LORA, "training.steps=1")


def answers(model: nn.Module) -> torch.Tensor:
    ids = torch.arange(12).view(3, 4) % 11
    with torch.inference_mode():
        return model(Padded.unpadded(ids))


def adapter_head(run: Path) -> dict[str, str]:
    from transduce.training.weights import read_with_metadata

    return read_with_metadata(run / ADAPTER_FILE)[1]


def loaded_task(recipe: Any, run: Path) -> Any:
    from transduce.tasks.translation.training import (
        TranslationTraining,
        encoded_pairs,
        load_translation,
    )

    translator = load_translation(recipe, run, "cpu")
    data = encoded_pairs(recipe, translator.source, translator.target, run.parent / ".cache")
    return TranslationTraining(translator, data)


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

    def test_a_rank_above_the_size_of_a_matrix(self) -> None:
        model = classifier()
        size = min(
            min(module.weight.shape)
            for name, module in model.named_modules()
            if "attention" in name and isinstance(module, nn.Linear)
        )
        with pytest.raises(
            SettingError, match=rf"rank = {size + 1} exceeds the full rank .*\({size}\)"
        ):
            add_low_rank_updates(model, LoraConfig(rank=size + 1))
        add_low_rank_updates(model, LoraConfig(rank=size))

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
            lora=LoraConfig(rank=2, targets=("*",)),
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
        with pytest.raises(SettingError, match="'output' shares its matrix"):
            begin(Tied(), path, tmp_path / "run", lora=LoraConfig(targets=("output",)))

    def test_frozen_layers_get_none(self, tmp_path: Path) -> None:
        path, model = saved(classifier(), tmp_path / "base"), classifier()
        begin(model, path, tmp_path / "run", lora=LoraConfig(), freeze=("encoder.layers.0.*",))
        adapted = [n for n, m in model.named_modules() if isinstance(m, LowRankLinear)]
        assert len(adapted) == 2 and all(n.startswith("encoder.layers.1.") for n in adapted)
        with pytest.raises(SettingError, match=r"every layer in fine_tune\.lora"):
            begin(classifier(), path, tmp_path / "run", lora=LoraConfig(), freeze=("encoder.*",))

    def test_pattern_without_a_match(self, tmp_path: Path) -> None:
        path = saved(classifier(), tmp_path / "base")
        wrong = LoraConfig(targets=("*attention.*", "*query*value", "*embedding*"))
        with pytest.raises(
            SettingError, match=r"lora\.targets: '\*embedding\*' matches no weights"
        ):
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

    @pytest.mark.system
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

    @pytest.mark.system
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


class TestMergeMistakes:
    def refused(self, base: Path, adapter: Path, output: Path, said: str) -> None:
        with pytest.raises(RunError, match=said) as caught:
            merge(base, adapter, output)
        assert "\n" not in str(caught.value)

    @pytest.mark.system
    def test_another_base(self, adapted: Path, data: Path, tmp_path: Path) -> None:
        for i, change in enumerate(("seed=2", "model.encoder.n_layers=2", "model.d_model=32")):
            settings = tiny_settings(data, "training.steps=1", change)
            other, _ = transduce.train(settings, tmp_path / f"other{i}")
            self.refused(other, adapted, tmp_path / "out", "on other base weights")
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
        self.refused(base, copy, tmp_path / "out", "not a complete safetensors file")

    def test_only_the_adapter_need_be_kept(self, base: Path, adapted: Path, tmp_path: Path) -> None:
        light = tmp_path / "light"
        light.mkdir()
        for pattern in ("recipe.toml", "*tokenizer*", ADAPTER_FILE):
            for file in adapted.glob(pattern):
                shutil.copy(file, light)
        merge(base, light, tmp_path / "out")
        assert not changed(weights(tmp_path / "out"), weights(adapted))
