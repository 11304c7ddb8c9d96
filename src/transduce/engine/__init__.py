"""Native decoding engine: an encoder-decoder Transformer in C++, without PyTorch in its steps."""
