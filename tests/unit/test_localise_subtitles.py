"""Subtitles: sentences over lines and cues, speakers, tags, widths."""

import pytest

from transduce.errors import DataError
from transduce.localise.document import Document, Target
from transduce.localise.formats import read_document
from transduce.localise.subtitles import COLUMNS
from transduce.localise.wrapping import shared_out, width, wrapped

SRT = """\
1
00:00:01,000 --> 00:00:02,000 X1:1
{\\an8}Ich habe nie gedacht,

2
00:00:02,500 --> 00:00:06,500
{\\an8}dass ich dich
<i>noch einmal</i> wiedersehe.

3
00:00:07,000 --> 00:00:08,000
- Hallo, Max.
- Wie <b>geht</b> es
dir?

4
00:00:08,000 --> 00:00:09,000

5
00:00:09,000 --> 00:00:10,000
<i>Gut.</i>

6
00:00:10,200 --> 00:00:11,000
Und wenn

7
00:00:13,000 --> 00:00:14,000
dann?
"""


def sources(document: Document) -> dict[str, str]:
    return {segment.key: segment.source for segment in document.segments}


def translated(document: Document, **targets: str) -> str:
    keys = {key: Target(text) for key, text in targets.items()}
    return document.with_targets(keys).decode()


def test_sentences_over_lines_and_cues_are_segments() -> None:
    assert sources(read_document("a.srt", SRT.encode())) == {
        "cues 1-2": "Ich habe nie gedacht, dass ich dich <i>noch einmal</i> wiedersehe.",
        "cue 3, speaker 1": "Hallo, Max.",
        "cue 3, speaker 2": "Wie <b>geht</b> es dir?",
        "cue 5": "Gut.",
        "cue 6": "Und wenn",  # two seconds before the next
        "cue 7": "dann?",
    }


def test_a_translation_is_cut_by_time_and_width() -> None:
    document = read_document("a.srt", SRT.encode())
    target = "I never thought, not in my dreams, that I would ever see <i>your face again</i> here."
    result = translated(document, **{"cues 1-2": target, "cue 3, speaker 2": "How <b>are</b> you?"})
    assert result == SRT.replace("Ich habe nie gedacht,", "I never thought,").replace(
        "dass ich dich\n<i>noch einmal</i> wiedersehe.",
        "not in my dreams, that I would\never see <i>your face again</i> here.",
    ).replace("Wie <b>geht</b> es\ndir?", "How <b>are</b> you?")


def test_tags_over_a_cut_are_closed_and_opened() -> None:
    data = SRT.replace("Ich habe", "<b>Ich</b> <i>habe").replace("noch einmal</i>", "noch</i>")
    data = data.replace("<i>noch", "noch").replace("\n", "\r\n")
    document = read_document("a.srt", data.encode())
    assert document.segments[0].source.startswith("<b>Ich</b> <i>habe nie gedacht, dass ich")
    result = translated(document, **{"cues 1-2": "<b>I</b> <i>never thought, that I see you.</i>"})
    assert "{\\an8}<b>I</b> <i>never</i>\r\n" in result
    assert "{\\an8}<i>thought, that I see you.</i>\r\n" in result
    assert result.count("\n") == result.count("\r\n")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("a --> b", "subtitles cannot hold the tags or the -->"),
        ("a <u>b</u>", "subtitles cannot hold the tags or the -->"),
        ("- Well", "begins as words of another speaker"),
    ],
)
def test_what_would_be_read_otherwise_is_refused(target: str, said: str) -> None:
    document = read_document("a.srt", SRT.encode())
    with pytest.raises(DataError, match=f"^cue 7: .*{said}"):
        document.with_targets({"cue 7": Target(target)})


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("I see you again.", "lacks <i>"),
        ("I see <i>you</i> <i>again</i>.", "has <i> more often"),
        ("I see </i>you<i>.", "not nested"),
    ],
)
def test_each_tag_comes_once(target: str, said: str) -> None:
    document = read_document("a.srt", SRT.encode())
    with pytest.raises(DataError, match=f"^cues 1-2: .*{said}"):
        document.with_targets({"cues 1-2": Target(target)})


def test_vtt_keeps_notes_styles_settings_and_voices() -> None:
    data = (
        "WEBVTT\n\nNOTE a\n00 b\n\nSTYLE\n::cue {}\n\nREGION\nid:x\n\nintro\n"
        "00:01.000 --> 00:02.000 line:0\n<v Roger>Ja &amp; nein, <00:01.500>so &lt;b&gt;"
        "&nbsp;ist es."
        "\n\n"
        "NOTE c\n\n00:03.000 --> 00:04.000\nEnde.\n"
    )
    document = read_document("a.vtt", data.encode())
    assert sources(document) == {
        "cue 1": "Ja &amp; nein, <00:01.500>so &lt;b&gt;\xa0ist es.",
        "cue 2": "Ende.",
    }
    result = translated(document, **{"cue 1": "Yes <00:01.500>& no --> <b>.\xa0", "cue 2": "End."})
    assert result == data.replace(
        "Ja &amp; nein, <00:01.500>so &lt;b&gt;&nbsp;ist es.",
        "Yes <00:01.500>&amp; no --&gt; &lt;b&gt;.",
    ).replace("Ende.", "End.")


def test_chinese_has_no_blanks() -> None:
    data = (
        "1\n00:00:01,000 --> 00:00:02,000\n我从来没有想到，\n\n"
        "2\n00:00:02,100 --> 00:00:03,000\n会再次\n见到你。\n"
    )
    document = read_document("a.srt", data.encode())
    assert sources(document) == {"cues 1-2": "我从来没有想到，会再次见到你。"}
    german = SRT.partition("\n\n3")[0]
    target = "我从来没有想到<i>会再次</i>在这里见到你，我亲爱的老朋友，真是太好了，太好了。"
    result = translated(read_document("a.srt", german.encode()), **{"cues 1-2": target})
    lines = [line.removeprefix("{\\an8}") for line in result.splitlines()]
    chinese = [line for line in lines if not line.isascii()]
    assert "".join(chinese) == target
    assert len(chinese) == 3
    assert all(width(line) <= COLUMNS for line in chinese)
    assert not any(line.startswith(("，", "。")) for line in chinese)


def test_widths_and_shares() -> None:
    assert wrapped("one two", 42) == ["one two"]
    text = "A line that is longer than forty-two columns is cut into like parts."
    assert wrapped(text, 42) == [
        "A line that is longer than forty-two",
        "columns is cut into like parts.",
    ]
    assert wrapped("a " + "b" * 60, 42) == ["a", "b" * 60]
    assert shared_out("Yes.", [1, 1, 1]) == ["Yes.", "", ""]
    assert shared_out("one two three four", [1, 1]) == ["one two", "three four"]
    assert shared_out("", [1, 1]) == ["", ""]


def test_a_number_is_no_counter_and_a_blank_line_no_end() -> None:
    data = (
        "00:00:01,000 --> 00:00:02,000\n12\n\nÄpfel.\n\n"
        "8\n00:00:03,000 --> 00:00:04,000\n-5 Grad.\n"
    )
    expected = {"cue 1": "12 Äpfel.", "cue 2": "-5 Grad."}
    assert sources(read_document("a.srt", data.encode())) == expected
