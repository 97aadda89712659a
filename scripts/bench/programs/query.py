"""query.py ROWS: fills a table of sqlite3 in memory, and groups and sorts it."""

import sqlite3
import sys

rows = int(sys.argv[1])
table = sqlite3.connect(":memory:")
table.execute("create table sample (at integer, place text, value real)")
table.executemany("insert into sample values (?, ?, ?)", ((at, f"place {at % 997}", at * 0.37 % 11) for at in range(rows)))
table.execute("create index by_place on sample (place, at)")
for least in range(8):
    table.execute("select place, count(*), avg(value) from sample where value > ? group by place order by 3", (least,)).fetchall()
