"""Files of labelled texts, and settings of small encoders for them."""

from pathlib import Path

TRANSFORMER = {"n_layers": 1, "n_heads": 2, "d_ff": 32, "dropout": 0.0}
BERT = {**TRANSFORMER, "positions": "learned", "max_positions": 64}


def write_tsv(path: Path, rows: list[tuple[str, ...]]) -> Path:
    """The rows as a tab-separated file."""
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return path
