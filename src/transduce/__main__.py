"""Entry point of `python -m transduce`."""

import gc
import sys

COLLECTED_AFTER = 100_000
"""New objects between two searches for cycles; Python's 700 makes imports a tenth longer."""


def main() -> int:
    """Run the command of `sys.argv`; returns the exit code.

    Ctrl-C has no traceback, not even while the command line is still being imported.
    """
    gc.set_threshold(COLLECTED_AFTER)
    try:
        from transduce.cli.main import main as run
    except KeyboardInterrupt:
        return 130
    code = run()
    gc.freeze()  # else the end looks for cycles in all modules, a sixth of the time for one line
    return code


if __name__ == "__main__":
    sys.exit(main())
