"""Files by their first bytes: read whatever their names, or refused by the name of their format."""

from __future__ import annotations

import bz2
import codecs
import functools
import gzip
import io
import lzma
import os
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transduce.cli.inputs import LineReader
from transduce.cli.output import open_output
from transduce.data.documents import TextFiles, read_documents
from transduce.data.interactions import InteractionsConfig, read_histories
from transduce.data.pairs import JsonLines, ParallelFiles, TabSeparated, read_pairs
from transduce.data.text_files import is_plain, packed, raw_lines, read_lines, text_of
from transduce.errors import DataError

Pack = Callable[[bytes], bytes]
PACKS: dict[str, Pack] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "lzma": functools.partial(lzma.compress, format=lzma.FORMAT_ALONE),
}
TEXT = "eins\nzwei Häuser\n\n😀\n"
LINES = ["eins", "zwei Häuser", "", "😀"]


def zipped(name: str = "a.txt") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, TEXT)
    return file.getvalue()


def written(directory: Path, content: bytes, name: str = "text.txt") -> Path:
    path = directory / name
    path.write_bytes(content)
    return path


class TestWhatIsRead:
    @pytest.mark.parametrize("pack", PACKS.values(), ids=PACKS)
    @pytest.mark.parametrize("name", ["a", "a.txt", "a.txt.GZ", "a.bz2", "a.gz"])
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
    def test_any_packing_and_encoding_under_any_name(
        self, tmp_path: Path, pack: Pack, name: str, encoding: str
    ) -> None:
        path = written(tmp_path, pack(TEXT.encode(encoding)), name)
        assert list(read_lines(path)) == LINES
        reader = LineReader(str(path))
        assert reader.size is None
        assert [line for batch in reader for line in batch.lines] == LINES
        assert not is_plain(path)

    @pytest.mark.parametrize(
        "mark", [codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE], ids=["8", "LE", "BE"]
    )
    @pytest.mark.parametrize("pack", [bytes, gzip.compress])
    def test_a_byte_order_mark_alone_is_no_line(
        self, tmp_path: Path, mark: bytes, pack: Pack
    ) -> None:
        path = written(tmp_path, pack(mark))
        assert list(LineReader(str(path))) == []
        with pytest.raises(DataError, match="is empty"):
            list(read_lines(path))

    @pytest.mark.parametrize("mark", [codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE])
    def test_utf_16_of_either_order(self, tmp_path: Path, mark: bytes) -> None:
        encoding = "utf-16-le" if mark == codecs.BOM_UTF16_LE else "utf-16-be"
        text = "".join(f"{i} Häuser 😀\r\n" for i in range(9999))  # characters across chunks
        path = written(tmp_path, mark + text.encode(encoding))
        assert list(read_lines(path)) == text.split("\r\n")[:-1]

    def test_what_utf_16_cannot_hold_is_an_error_or_a_warning(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        for tail in (b"b\0\0\xd8\n\0", b"b\0c"):  # half a pair, half a character
            path = written(tmp_path, codecs.BOM_UTF16_LE + "a\n".encode("utf-16-le") + tail)
            with pytest.raises(DataError, match="line 2 is not valid UTF-8 at byte 2 of the line"):
                list(read_lines(path))
            lines = [line for batch in LineReader(str(path)) for line in batch.lines]
            assert lines[0] == "a" and lines[1].startswith("b\ufffd")
            assert "line 2 is not valid UTF-8" in caplog.text

    @pytest.mark.parametrize("pack", PACKS.values(), ids=PACKS)
    def test_data_of_all_kinds(self, tmp_path: Path, pack: Pack) -> None:
        written(tmp_path, pack(b"a\tb\n"), "tsv")
        written(tmp_path, pack("a\n".encode("utf-16")), "a")
        written(tmp_path, b"b\n", "b")
        written(tmp_path, pack(b'{"source": "a", "target": "b"}\n'), "jsonl")
        written(tmp_path, pack(b"user,item,time\nann,x,1\n"), "csv")
        configs: list[Any] = [
            TabSeparated(path=Path("tsv")),
            ParallelFiles(source=Path("a"), target=Path("b")),
            JsonLines(path=Path("jsonl")),
        ]
        for config in configs:
            assert list(read_pairs(config, tmp_path)) == [("a", "b")]
        assert list(read_documents(TextFiles(path=Path("tsv")), tmp_path)) == ["a\tb\n"]
        assert read_histories(InteractionsConfig(path=Path("csv")), tmp_path).items == ("x",)

    @pytest.mark.parametrize("text", ["BZh", "BZh9", "BZh91AY", "PK", "7z", "{", "%PDF", ""])
    def test_texts_that_begin_as_formats_do(self, tmp_path: Path, text: str) -> None:
        path = written(tmp_path, f"{text}\nb".encode())
        assert list(read_lines(path)) == [text, "b"]
        if text:  # the whole file
            assert list(read_lines(written(tmp_path, text.encode()))) == [text]

    def test_packed_files_joined_and_texts_larger_than_a_chunk(self, tmp_path: Path) -> None:
        for pack in PACKS.values():
            path = written(tmp_path, pack(b"x\n" * 99_999) + pack(b"y\n"))
            assert list(read_lines(path)) == ["x"] * 99_999 + ["y"]

    def test_memory_stays_flat(self) -> None:
        """Some hundred kilobytes that unpack to gigabytes are read as they come."""
        read = []

        class Counted(io.BytesIO):
            def read1(self, size: int | None = -1, /) -> bytes:
                read.append(size)
                return super().read1(size)

        lines = raw_lines(Counted(bz2.compress(b"a\n" * 2**19) * 2**12), "a")
        assert [next(lines) for _ in range(3)] == [b"a\n"] * 3
        assert len(read) < 3

    def test_a_line_comes_out_of_a_pipe_as_it_goes_in(self) -> None:
        for first in (b"abc\n", b"B\n", b"\x1f\n", b"\xef\xbb\xbf\n", "ä\n".encode("utf-16")):
            end, begin = os.pipe()
            with os.fdopen(end, "rb") as file, os.fdopen(begin, "wb", buffering=0) as pipe:
                lines = raw_lines(file, "pipe")
                pipe.write(first)
                assert next(lines)
                pipe.write(b"\n\0" if first[0] == 0xFF else b"\n")
                assert next(lines)

    @pytest.mark.parametrize(
        "content", [gzip.compress(TEXT.encode(), mtime=0), TEXT.encode("utf-8-sig")]
    )
    def test_first_bytes_that_come_one_by_one(self, content: bytes) -> None:
        end, begin = os.pipe()

        def write() -> None:
            with os.fdopen(begin, "wb", buffering=0) as pipe:
                for byte in content:
                    pipe.write(bytes([byte]))

        thread = threading.Thread(target=write)
        thread.start()
        with os.fdopen(end, "rb") as file:
            assert b"".join(raw_lines(file, "pipe")).decode() == TEXT
        thread.join()


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (zipped(), "zip archive.*unzip -p"),
            (b"\x28\xb5\x2f\xfd\x24\0", "a damaged zstd file"),
            (b"\x04\x22\x4d\x18\x40", "compressed by lz4"),
            (b"7z\xbc\xaf\x27\x1c\0", "7z archive"),
            (b"%PDF-1.7\n", "PDF document; .*pdftotext"),
            (b"{\\rtf1\\ansi", "RTF document"),
            (b"PAR1\x15\0", 'Parquet file; .*kind = "parquet"'),
            (TEXT.encode("utf-32"), "UTF-32; .*iconv"),
            (b"a.txt".ljust(257, b"\0") + b"ustar\0", "tar archive"),
            (gzip.compress(b"a.txt".ljust(257, b"\0") + b"ustar\0", mtime=0), "tar archive"),
            (bz2.compress(zipped()), "zip archive"),
            (b"PK\5\6" + bytes(18), "an empty zip archive"),
            (b"\x50\x2a\x4d\x18\4\0\0\0abcd\x28\xb5\x2f\xfd", "compressed by zstd"),
            (b"\x1f\x9d\x90abc", "compressed by compress; .*gzip -dc"),
            (b"LZIP\1abc", "compressed by lzip"),
            (b"Rar!\x1a\7\1\0", "RAR archive"),
            (b"\x89PNG\r\n\x1a\n", "a PNG image"),
            (b"\xff\xd8\xff\xe0\0\x10JFIF", "a JPEG image"),
            (b"SQLite format 3\0", "an SQLite database"),
            (b"ARROW1\0\0", 'an Arrow file; .*kind = "hub"'),
            (
                gzip.compress(bz2.compress(b"a\n"), mtime=0),
                "compressed twice, by bzip2 and then by gzip",
            ),
        ],
        ids=[
            *("zip", "zstd", "lz4", "7z", "pdf", "rtf", "parquet", "utf-32", "tar", "tar.gz"),
            *("zip.bz2", "empty zip", "skippable zstd", "compress", "lzip", "rar", "png", "jpeg"),
            *("sqlite", "arrow", "bz2.gz"),
        ],
    )
    def test_what_cannot_be_read_names_its_format(
        self, tmp_path: Path, content: bytes, message: str
    ) -> None:
        path = written(tmp_path, content)
        with pytest.raises(DataError, match=rf"text\.txt is .*{message}"):
            list(read_lines(path))
        with pytest.raises(DataError, match=message):
            list(LineReader(str(path)))
        with pytest.raises(DataError, match=message):
            list(read_documents(TextFiles(path=path), tmp_path))

    @pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
    @pytest.mark.parametrize(
        "text",
        ["abc\nde\n", "قطة كلب\tcat\r\n" * 9, "यह बिल्ली\nवह\n" * 9, "我有一本书\r\n" * 9],
    )
    def test_utf_16_without_its_mark(self, tmp_path: Path, encoding: str, text: str) -> None:
        content = text.encode(encoding)
        for path in (
            written(tmp_path, content),
            written(tmp_path, gzip.compress(content, mtime=0), "b"),
        ):
            with pytest.raises(DataError, match=r"without its .* iconv -f UTF-16[BL]E -t"):
                list(read_lines(path))
        for raw in (b"a\0b\n", b"\0\n\0\0\n", b"\0" * 9, b"abcdefghij" * 9 + b"\0"):
            assert b"".join(raw_lines(io.BytesIO(raw), "a")) == raw

    @pytest.mark.parametrize("name", PACKS)
    def test_damage_is_named(self, tmp_path: Path, name: str) -> None:
        whole = PACKS[name](bytes(range(65, 91)) * 100 + b"\n")
        for content in (whole[:-9], whole[:20] + b"\xff" * 40 + whole[60:]):
            with pytest.raises(DataError, match=rf"text\.txt is a damaged {name} file"):
                list(read_lines(written(tmp_path, content)))

    @pytest.mark.parametrize(
        ("suffix", "name"), [(".gz", "gzip"), (".BZ2", "bzip2"), (".xz", "xz"), (".lzma", "lzma")]
    )
    def test_text_under_the_name_of_a_packing(self, tmp_path: Path, suffix: str, name: str) -> None:
        with pytest.raises(
            DataError, match=rf"not in {name} format .*remove {suffix.lower()} from"
        ):
            list(read_lines(written(tmp_path, b"abc\n", f"a{suffix}")))


PO = '# of somebody\n#, fuzzy\n\nmsgid ""\nmsgstr "a"\n\nmsgid "b"\nmsgstr "c"\n'
XML = '<?xml version="1.0" encoding="UTF-8"?>\n'
TMX = '<tmx version="1.4"><body><tu><tuv xml:lang="en"><seg>a</seg></tuv></tu></body></tmx>'


class TestDocuments:
    @pytest.mark.parametrize(
        ("text", "what"),
        [
            (PO, "a PO catalogue"),
            ('msgctxt "menu"\nmsgid "a"\n"b"\nmsgstr ""\n', "a PO catalogue"),
            (f"{XML}{TMX}", "a TMX translation memory"),
            (f'{XML}<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<!-- x -->{TMX}', "an XML document"),
            (XML.strip() + TMX, "a TMX translation memory"),
            (f'{XML}<xliff version="1.2">\n', "an XLIFF file"),
            ("<!DOCTYPE html>\n<html>\n<body>\n", "an HTML page"),
            ('\n  <HTML lang="en">\n<body>\n', "an HTML page"),
            (f"{XML}<resources>\n", "an XML document"),
            ("1\n00:00:01,600 --> 00:00:04,200\nHello\n", "SRT subtitles"),
            ("WEBVTT\n\n00:01.000 --> 00:04.000\nHello\n", "WebVTT subtitles"),
            ('msgid "a"\nmsgid_plural "b"\n"c"\nmsgstr[0] "d"\nmsgstr[1] "e"\n', "a PO catalogue"),
            ('domain "a"\nmsgctxt "b"\n"c"\nmsgid "a"\nmsgstr "d"\n', "a PO catalogue"),
            ("<!-- a -->\n<xliff version='2.1'>\n", "an XML document"),
            ("<x:xliff xmlns:x='urn:a'>\n", "an XLIFF file"),
            ("<!DOCTYPE TS>\n<TS>\n", "an XML document"),
            ("<resources>\n  <string>\n", "an XML document"),
            ("<!-- a\nb -->\n<!doctype html>\n<html>\n", "an XML document"),
            ('<refset setid="a" trglang="any">\n<doc>\n', "an SGML test set"),
            ("1\n0:00:01.60 --> 0:00:04.20\nHello\n", "SRT subtitles"),
            ("0:00:00.599,0:00:04.160\nHello\n", "SBV subtitles"),
            ("[Script Info]\nTitle: a\n", "SSA subtitles"),
        ],
    )
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
    def test_are_refused_by_name(self, tmp_path: Path, text: str, what: str, encoding: str) -> None:
        path = written(tmp_path, text.replace("\n", "\r\n").encode(encoding))
        with pytest.raises(
            DataError, match=rf"text\.txt is {what}, not lines of text; extract its"
        ):
            list(read_lines(path))
        with pytest.raises(DataError, match=what):
            list(LineReader(str(path)))

    @pytest.mark.parametrize(
        "text",
        [
            'msgid "a"\nmsgid "b"\n',
            'msgid ""\nis a line of a PO file\n',
            "1\n2\n",
            "1\n00:00:01 is early\n",
            "WEBVTT\nis a format\n",
            "<html><body>one page a line</body></html>\n" * 2,
            "<html>\tspam\n",
            f"{XML.strip()}\ta declaration\n",
            "<b>bold</b>\n",
            "# a comment\n",
            "[Script Info] is a head\n",
            "0:00:00.599,0:00:04.160 are times\n",
            "<resources> is a tag\n",
            "<!-- a --> comment\n",
            "the <tmx> element\n",
        ],
    )
    def test_texts_about_them_are_read(self, tmp_path: Path, text: str) -> None:
        assert list(read_lines(written(tmp_path, text.encode()))) == text.splitlines()

    def test_a_document_is_one_for_a_language_model(self, tmp_path: Path) -> None:
        path = written(tmp_path, f"{XML}<a/>\n".encode())
        assert list(read_documents(TextFiles(path=path), tmp_path)) == [f"{XML}<a/>\n"]

    @pytest.mark.parametrize(
        "unit", [b"\n", b" ", b"\r\n", b"#\n", b'msgid ""\n', b'""\n', b"<?xml "]
    )
    def test_beginnings_that_go_on_for_long_take_no_time(self, tmp_path: Path, unit: bytes) -> None:
        path = written(tmp_path, unit * 2**18)
        assert sum(1 for _ in read_lines(path)) == max(unit.count(b"\n") << 18, 1)


class TestWriting:
    @pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".XZ", ""])
    def test_an_output_is_packed_as_its_name_says(self, tmp_path: Path, suffix: str) -> None:
        path = tmp_path / f"out{suffix}"
        with open_output(str(path)) as out:
            out.write(["a", "ä"])
        assert is_plain(path) is (suffix == "")
        assert list(read_lines(path)) == ["a", "ä"]

    def test_equal_texts_are_equal_files(self) -> None:
        for suffix in (".gz", ".bz2", ".xz"):
            files = [io.BytesIO(), io.BytesIO()]
            for file in files:
                out = packed(file, f"a{suffix}")
                out.write(b"abc\n")
                out.close()
            assert files[0].getvalue() == files[1].getvalue()
            assert text_of(io.BytesIO(files[0].getvalue()), f"a{suffix}").read() == b"abc\n"
