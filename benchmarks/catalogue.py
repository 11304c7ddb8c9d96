"""Time and memory of reading a catalogue (PO, XLIFF) and writing its missing translations.

    python benchmarks/catalogue.py MEGABYTES [--format xlf]

Half of the messages have a translation.  Runs in one process; run it once for each size.
"""

import argparse
import resource
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
XLIFF_HEADER = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file original="file.c" source-language="en" target-language="de" datatype="plaintext"><body>
"""
UNIT = """<trans-unit id="{number}">
<source>Message number {number} of %d in the file, which is opened</source>
<target>{translation}</target>
</trans-unit>
"""
FORMATS = {"po": (HEADER, MESSAGE, ""), "xlf": (XLIFF_HEADER, UNIT, "</body></file></xliff>")}


def catalogue(n_bytes: int, format: str) -> bytes:
    """A catalogue of at least some bytes."""
    header, message, end = FORMATS[format]
    parts, size = [header], len(header)
    while size < n_bytes:
        number = len(parts)
        translation = "" if number % 2 else f"Nachricht {number} von %d"
        parts.append(message.format(module=number % 97, number=number, translation=translation))
        size += len(parts[-1])
    return "".join([*parts, end]).encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("megabytes", type=int)
    parser.add_argument("--format", choices=list(FORMATS), default="po")
    arguments = parser.parse_args()
    content = catalogue(arguments.megabytes * 1_000_000, arguments.format)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    document = read_document(f"de.{arguments.format}", content, target_language="de")
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
