"""Translation in the native engine, in a process without PyTorch."""
