"""Reads a Parquet dataset with DuckDB, pandas and Polars, and prints sums as JSON:
python tables.py DIRECTORY
"""

import json
import sys
from pathlib import Path

import duckdb
import pandas
import polars

root = Path(sys.argv[1])
kernels = f"{root}/kernels/*/*.parquet"
by_rank = duckdb.sql(
    f"select rank, count(*), sum(duration_ns)::bigint from read_parquet('{kernels}', "
    "hive_partitioning = true) group by rank order by rank"
).fetchall()
joined = duckdb.sql(
    f"""select count(*), sum(k.start_ns - s.start_ns)::bigint
    from read_parquet('{kernels}', hive_partitioning = true) k
    join read_parquet('{root}/spans/*/*.parquet', hive_partitioning = true) s
    using (rank, process, correlation)"""
).fetchall()[0]
frame = pandas.concat(pandas.read_parquet(path) for path in sorted(root.glob("kernels/*/*.parquet")))
lazy = polars.scan_parquet(kernels, hive_partitioning=True)
print(
    json.dumps(
        {
            "duckdb": by_rank,
            "launches": joined,
            "pandas": [len(frame), int(frame["duration_ns"].sum())],
            "polars": lazy.select(polars.len(), polars.col("duration_ns").sum()).collect().rows(),
            "names": sorted(set(frame["name"])),
            "nulls": int(frame["graph"].isna().sum()),
            "ranks": lazy.select(polars.col("rank").unique().sort()).collect()["rank"].to_list(),
        }
    )
)
