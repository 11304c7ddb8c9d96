"""Settings of small encoders for labelled texts."""

TRANSFORMER = {"n_layers": 1, "n_heads": 2, "d_ff": 32, "dropout": 0.0}
BERT = {**TRANSFORMER, "positions": "learned", "max_positions": 64}
