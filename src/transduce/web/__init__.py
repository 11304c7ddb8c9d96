"""Models for browsers and Node: one page, or one file, with the engine in WebAssembly."""
