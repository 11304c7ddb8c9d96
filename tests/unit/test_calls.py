"""Commands as functions of Python: names, typed options, results in a notebook."""

import math
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import transduce
from transduce.errors import DataError, SettingError
from transduce.making.account import Account

ROOT = Path(__file__).parents[2]
CALLS = ("make", "doctor", "export", "import_model", "sweep")
SCRIPT = """import transduce

account = transduce.make("pairs.tsv", run="runs/a", minutes=4)
print(account.scores["bleu"] + 1, account.run.upper())
for kind, count in transduce.doctor("pairs.tsv", ignore=["length"]).counts.items():
    print(kind.upper(), count + 1)
page = transduce.export("runs/a", "page.html", form="html", precision="int8")
print(transduce.import_model(page.parent, "runs/b", overwrite=True)("a").text)
done = transduce.sweep("recipe.toml", overrides=["seed=1,2"], jobs=2)
print(done.best)
"""


@pytest.mark.system
def test_the_calls_are_no_modules_whatever_is_imported() -> None:
    program = (
        "import importlib, pkgutil, transduce\n"
        "for module in pkgutil.walk_packages(transduce.__path__, 'transduce.'):\n"
        "    if not module.name.endswith('__main__'):\n"
        "        importlib.import_module(module.name)\n"
        f"for name in {CALLS}:\n"
        "    assert callable(getattr(transduce, name)), name\n"
        "try:\n    transduce.make('no such file', run='no such run')\n"
        "except transduce.SettingError as error:\n    print(error)\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "no such file or folder" in printed


def test_no_module_shadows_a_public_name() -> None:
    modules = {module.name for module in pkgutil.iter_modules(transduce.__path__)}
    assert not modules & {*transduce.__all__}


@pytest.mark.system
def test_a_misspelt_option_is_an_error_of_the_type_checker(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    wrong = {
        "minutes=4": "minuts=4",
        'ignore=["length"]': 'ignored=["length"]',
        'form="html"': 'form="htm"',
        "overwrite=True": "overwrites=True",
        "jobs=2": 'jobs="2"',
    }
    scripts = {"right": SCRIPT}
    scripts |= {f"wrong{n}": SCRIPT.replace(*pair) for n, pair in enumerate(wrong.items())}
    paths = [tmp_path / f"{name}.py" for name in scripts]
    for path, text in zip(paths, scripts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    options = ["--strict", "--follow-imports=silent", "--config-file", "", "--cache-dir"]
    cache = ROOT / ".mypy_cache" / "calls"
    command = [sys.executable, "-m", "mypy", *options, str(cache), *map(str, paths)]
    done = subprocess.run(
        command, cwd=ROOT / "src", capture_output=True, text=True, check=False
    ).stdout
    errors = [line for line in done.splitlines() if ": error:" in line]
    assert len(errors) == len(wrong), done
    assert not [line for line in errors if "right.py" in line]


@pytest.mark.parametrize("name", CALLS)
def test_a_misspelt_option_is_refused_in_a_line(name: str) -> None:
    call = getattr(transduce, name)
    with pytest.raises(SettingError, match=f"{name}: no option overwritten"):
        call("a", *(["b"] if name in ("export", "import_model") else []), overwritten=1)
    if name == "make":
        with pytest.raises(SettingError, match="did you mean 'minutes'"):
            call("a", minuts=1)


def test_wrong_calls_of_make_are_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    wrong = [{"minutes": minutes} for minutes in (0.0, math.inf, math.nan)]
    for files, options in [
        ((), {}),
        *((("a",), options) for options in ({"resume": True}, *wrong)),
    ]:
        with pytest.raises(SettingError):
            transduce.make(*files, run=run, **options)  # type: ignore[arg-type]
    assert not run.exists()


def test_an_examination_counts_and_shows(tmp_path: Path) -> None:
    table = tmp_path / "pairs.tsv"
    rows = [f"a word {n}\tein Wort {n}" for n in range(20)]
    table.write_text("\n".join([*rows, rows[0], "<b>\t"]) + "\n", encoding="utf-8")
    examination = transduce.doctor(table, ignore=["alignment", "language", "length"])
    assert (examination.pairs, examination.counts["duplicate"], examination.counts["empty"]) == (
        *(22, 1, 1),
    )
    shown = examination._repr_html_()
    assert "duplicate" in shown and "ein Wort 0" in shown and "<b>" not in shown
    with pytest.raises(SettingError, match="did you mean 'duplicate'"):
        transduce.doctor(table, ignore=["duplicat"])
    with pytest.raises((SettingError, DataError)):
        transduce.doctor(tmp_path / "none.tsv")


def test_an_account_shows_in_a_notebook() -> None:
    facts = {"dropped": {}, "columns": [], "swapped": 0, "order": "", "tried": "", "synthetic": 0}
    facts |= {"read": 9, "train": 5, "valid": 2, "test": 2, "speed": 7, "candidate": "nano"}
    facts |= {"parameters": 3, "steps": 1, "epochs": 30, "forms": {}, "dropped_count": 0}
    rows = [("<i>", "b", "c", 90.0)]
    account = Account("run", "translation", False, facts, {}, {}, (1, 2, 97), rows, [], [])
    shown = account._repr_html_()
    assert "How good it is" in shown and "&lt;i&gt;" in shown and "<i>" not in shown


@pytest.mark.system
def test_the_calls_need_no_torch_before_they_are_called() -> None:
    names = ", ".join(f"transduce.{name}" for name in CALLS)
    program = f"import sys, transduce; {names}; assert not {{'torch', 'numpy'}} & {{*sys.modules}}"
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)
