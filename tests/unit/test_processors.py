"""`make test-processors` names the settings that a machine lacks, and fails if too few ran."""

import pytest

import processors

AVX2 = frozenset({"sse4_1", "avx2", "fma"})


@pytest.mark.parametrize(
    ("features", "failing", "arguments", "status", "ran"),
    [
        (AVX2, "", [], 0, ["as-it-is", "avx2", "sse4"]),
        (AVX2 | {"amx_tile"}, "", [], 0, ["as-it-is", "avx512-without-amx", "avx2", "sse4"]),
        (AVX2, "avx2", [], 1, ["as-it-is", "avx2", "sse4"]),
        (frozenset(), "", [], 1, ["as-it-is"]),
        (AVX2, "", ["avx2", "--", "tests/contract"], 0, ["avx2"]),
        (frozenset({"sse4_1"}), "", ["avx2"], 1, []),
        (AVX2, "", ["avx3"], 2, []),
    ],
)
def test_settings_that_the_machine_allows_run(
    features: frozenset[str],
    failing: str,
    arguments: list[str],
    status: int,
    ran: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    done: list[tuple[str, list[str]]] = []

    def passes(setting: processors.Setting, paths: list[str]) -> bool:
        done.append((setting.name, paths))
        return setting.name != failing

    monkeypatch.setattr(processors, "processor_features", lambda: features)
    monkeypatch.setattr(processors, "passes", passes)
    assert processors.main(arguments) == status
    assert [name for name, _ in done] == ran
    paths = arguments[arguments.index("--") + 1 :] if arguments[1:] else list(processors.PATHS)
    assert all(given == paths for _, given in done)
    lacked = [line for line in capsys.readouterr().out.splitlines() if "lacks" in line]
    assert ("avx2" in str(lacked)) == (status != 2 and "avx2" not in features)
