"""Runs queries on the views over a Parquet dataset with DuckDB; prints their rows as JSON:
python views.py DIRECTORY VIEWS.sql QUERY…
"""

import json
import sys
from pathlib import Path

import duckdb

root, views = Path(sys.argv[1]), Path(sys.argv[2])
database = duckdb.connect()
for name in json.loads((root / "_tprof.json").read_text())["tables"]:
    files = f"{root}/{name}/**/*.parquet"
    database.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{files}', hive_partitioning = false)")
database.execute(views.read_text())
print(json.dumps([database.sql(query).fetchall() for query in sys.argv[3:]]))
