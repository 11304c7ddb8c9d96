"""Pictures of attention say what the weights say."""

from transduce.support.tables import SHADES, attention_in_terminal, padded

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


def test_an_empty_output_has_no_rows() -> None:
    assert attention_in_terminal(["h", "i"], [], []) == " h i"


def test_columns_of_a_list_line_up_too() -> None:
    assert padded(["我", "abc", ""]) == ["我 ", "abc", "   "]
