"""Time and memory of reading a catalogue (PO) and writing its missing translations.

    python benchmarks/catalogue.py MEGABYTES

Half of the messages have a translation.  Runs in one process; run it once for each size.
"""

import resource
import sys
import time

from transduce.localise.formats import read_document

HEADER = r"""msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Language: de\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

"""
MESSAGE = """#: src/file{module}.c:{number}
msgid "Message number {number} of %d in the file, which is opened"
msgstr "{translation}"

"""


def catalogue(n_bytes: int) -> bytes:
    """A catalogue of at least some bytes."""
    parts, size = [HEADER], len(HEADER)
    while size < n_bytes:
        number = len(parts)
        translation = "" if number % 2 else f"Nachricht {number} von %d"
        parts.append(MESSAGE.format(module=number % 97, number=number, translation=translation))
        size += len(parts[-1])
    return "".join(parts).encode()


def main() -> None:
    megabytes = int(sys.argv[1])
    content = catalogue(megabytes * 1_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    document = read_document("de.po", content, target_language="de")
    read = time.process_time()
    missing = [s.key for s in document.segments if s.state == "missing"]
    document.with_targets(dict.fromkeys(missing, "Nachricht %d"))
    written = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{len(content) / 1e6:.1f} MB, {len(document.segments)} messages, {len(missing)} missing")
    print(f"read {read - start:.1f}, written {written - read:.1f} CPU-seconds")
    print(f"peak {peak / 1024:.0f} MB, {before / 1024:.0f} before reading")


if __name__ == "__main__":
    main()
