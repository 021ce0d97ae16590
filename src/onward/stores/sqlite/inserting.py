"""Many rows in few statements: what each statement costs beside its row is about as much as the row."""

import sqlite3
from typing import Final

_ROWS_AT_ONCE: Final = (32, 8, 2)
"""The longest statement has fewer than 999 parameters, the most that every SQLite takes."""


class Insert:
    """``INSERT ... VALUES (...)``, of any number of rows."""

    __slots__ = ("_one", "_several", "_width")

    def __init__(self, sql: str) -> None:
        """`sql`: of one row, with nothing behind it."""
        row = sql.rpartition("VALUES ")[2]
        self._one = sql
        self._width = row.count("?")
        self._several = [(count * self._width, sql + (", " + row) * (count - 1)) for count in _ROWS_AT_ONCE]

    def write(self, cursor: sqlite3.Cursor, values: list[object]) -> None:
        """`values`: of all rows, one row's behind the other's."""
        start, left = 0, len(values)
        for size, sql in self._several:
            while left >= size:
                cursor.execute(sql, values[start : start + size])
                start += size
                left -= size
        if left:
            cursor.execute(self._one, values[start:])
