"""Old names of what the pages named lead to the new ones, with a warning."""

import importlib

import pytest

OLD = {
    "transduce.decoding.State": "transduce.decoding.search.SearchState",
    "transduce.run.train": "transduce.train_run.train",
    "transduce.tasks.alignment.align_pairs": "transduce.tasks.translation.alignment.align_pairs",
    "transduce.tasks.dialogue.Conversation": "transduce.tasks.language_model.dialogue.Conversation",
    "transduce.tasks.recipe.parse_translation": (
        "transduce.tasks.translation.recipe.parse_translation"
    ),
}


@pytest.mark.parametrize(("old", "new"), OLD.items())
def test_an_old_name_leads_to_the_new_one(old: str, new: str) -> None:
    (module, name), (new_module, new_name) = old.rsplit(".", 1), new.rsplit(".", 1)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
        found = getattr(importlib.import_module(module), name)
    assert found is getattr(importlib.import_module(new_module), new_name)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        importlib.import_module(module).nothing  # noqa: B018
