"""Reads all tables of a Parquet dataset with DuckDB, and prints the rows and a hash of each table as JSON:
python same.py DIRECTORY
"""

import json
import sys
from pathlib import Path

import duckdb

root = Path(sys.argv[1])
found = {}
for table in sorted(path for path in root.iterdir() if path.is_dir()):
    rows = duckdb.sql(
        f"select * from read_parquet('{table}/**/*.parquet', hive_partitioning = false) order by all"
    )
    found[table.name] = [rows.columns, [list(map(str, row)) for row in rows.fetchall()]]
print(json.dumps(found))
