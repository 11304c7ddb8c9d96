"""Pictures of attention say what the weights say."""

from html.parser import HTMLParser

from transduce.inspect.picture import (
    SHADES,
    attention_figure,
    attention_in_terminal,
    attention_page,
)

WEIGHTS = [[0.9, 0.1, 0.0], [0.0, 0.0, 1.0]]


def test_terminal_grid_has_a_line_per_row_and_darkest_where_the_weight_is() -> None:
    lines = attention_in_terminal(["a", "b", "c"], ["X", "YY"], WEIGHTS).splitlines()
    assert len(lines) == 3
    assert lines[0].split() == ["a", "b", "c"]
    assert len({len(line) for line in lines}) == 1, "columns must line up"
    first, last = lines[1].removeprefix(" X"), lines[2].removeprefix("YY")
    assert first.strip() == SHADES[-1] * 2
    assert last.endswith(SHADES[-1] * 2)
    assert last.strip() == SHADES[-1] * 2


def test_columns_line_up_where_characters_are_two_cells_wide_or_none() -> None:
    wide = attention_in_terminal(["我", "e\u0301", "c"], ["好", "YY"], WEIGHTS).splitlines()
    narrow = attention_in_terminal(["aa", "e", "c"], ["xx", "YY"], WEIGHTS).splitlines()
    assert [
        line.replace("我", "aa").replace("e\u0301", "e").replace("好", "xx") for line in wide
    ] == (narrow)


def test_weights_of_exactly_zero_and_one_are_shades() -> None:
    grid = attention_in_terminal(["a"], ["x"], [[1.0]]) + attention_in_terminal(["a"], ["x"], [[0]])
    assert SHADES[-1] in grid


class _Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.titles: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta",):
            self.open.append(tag)
        if tag == "td":
            self.titles.append(dict(attrs)["title"] or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_an_empty_output_has_no_rows() -> None:
    assert attention_in_terminal(["h", "i"], [], []) == " h i"


def test_page_is_well_formed_and_escapes_tokens() -> None:
    figure = attention_figure("<b> & co", ["<", "&", '"'], ["X", "<script>"], WEIGHTS)
    page = attention_page("A <title>", "Why & how", [figure])
    parser = _Cells()
    parser.feed(page)
    assert parser.open == []
    assert "<script>" not in page
    assert len(parser.titles) == 6
    assert "X looks at <: 0.900" in parser.titles[0]
