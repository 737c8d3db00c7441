"""Where an INSERT's data begins."""

import pytest

from infra.embedded.history_sql import Insert, output_format, split_insert


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"INSERT INTO t FORMAT Native\n\x01\x02", ("INSERT INTO t ", "Native", b"\x01\x02")),
        (b"insert into t (a, b) format CSV 1,2", ("insert into t (a, b) ", "CSV", b"1,2")),
        (b"insert into t format CSV \r\n\n1", ("insert into t ", "CSV", b"\n1")),
        (b"-- format X\n insert into t format TSV\n", ("-- format X\n insert into t ", "TSV", b"")),
        (b"insert into `format x` format TSV\n1", ("insert into `format x` ", "TSV", b"1")),
        (
            b"insert into t settings a = 'format Q' format TSV\n1",
            ("insert into t settings a = 'format Q' ", "TSV", b"1"),
        ),
        (
            b"insert into t (format, b) format TSV\n1",
            ("insert into t (format, b) ", "TSV", b"1"),
        ),
        (b"insert /* select */ into t format TSV\n1", ("insert /* select */ into t ", "TSV", b"1")),
        (b"insert into t format TSV\nselect", ("insert into t ", "TSV", b"select")),
        (b"insert into t format Native\n(", ("insert into t ", "Native", b"(")),
    ],
)
def test_an_insert_is_taken_apart(text: bytes, expected: tuple[str, str, bytes]) -> None:
    assert split_insert(text) == Insert(*expected)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"select 1 format TSV",
        b"insert into t values (1)",
        b"insert into t select 1 format TSV",
        b"insert into t",
        b"insert into t (format TSV",
        b"insert into t 'format TSV",
    ],
)
def test_a_text_without_separate_data_stays_whole(text: bytes) -> None:
    assert split_insert(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"select 1", "TabSeparated"),
        (b"select 1 FORMAT Native", "Native"),
        (b"select 1\n format JSON ;\n", "JSON"),
        (b"select 'format CSV'", "TabSeparated"),
    ],
)
def test_the_output_format_is_read_off_the_end(text: bytes, expected: str) -> None:
    assert output_format(text, "TabSeparated") == expected
