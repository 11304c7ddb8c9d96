"""Version of the package, known without its metadata, as in a source tree that runs uninstalled."""

__version__ = "0.1.0"
