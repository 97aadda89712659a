"""Prints the bytes and rows that each view reads and shuffles, so that they can be extrapolated to more ranks. The data
set has 1,024 ranks, as `tprof export --compact` writes them. The figures are those that Spark counts in the stages of a
query.
"""

from compare import cluster, query_of, views
from spark import Spark

RANKS, A_FILE = 1024, 128
COUNTED = ("inputRecords", "inputBytes", "shuffleWriteRecords", "shuffleWriteBytes")


def files_of(spark, before):
    """Returns the number of files that the queries after this one read, from the metrics in Spark's plans."""
    read = 0
    for query in spark.rest("/sql?details=true&planDescription=false&length=10000"):
        if query["id"] > before:
            for node in query["nodes"]:
                if node["nodeName"].startswith("Scan parquet"):
                    read += sum(int(m["value"].replace(",", "")) for m in node["metrics"] if m["name"] == "number of files read")
    return read


def last_query(spark):
    return max((query["id"] for query in spark.rest("/sql?details=false&length=10000")), default=-1)


def measure(made):
    dataset = made.ranks(RANKS, A_FILE)
    files = [path for path in dataset.rglob("*.parquet") if path.name != "none.parquet"]
    size = sum(path.stat().st_size for path in files)
    print(f"{RANKS} ranks, {A_FILE} a file: {len(files)} files of {len({path.parent for path in files})} tables, {size:,} bytes")
    names = views(made.sql)[1]
    print("| view | files | rows read | bytes read | rows shuffled | bytes shuffled | rows |\n|---|---|---|---|---|---|---|")
    with Spark(made.folder / "spark-sizes", 2) as spark:
        ask = cluster(made.sql, spark.connect, dataset)
        for view in names:
            stage = max((row["stageId"] for row in spark.rest("/stages")), default=-1)
            query = last_query(spark)
            rows = ask(query_of(made.sql, dataset, view, RANKS))
            count = sum(row.get("rows_", 1) for row in rows)
            stages = [row for row in spark.rest("/stages?status=complete") if row["stageId"] > stage]
            sums = [sum(row[key] for row in stages) for key in COUNTED]
            print(f"| `{view}` | {files_of(spark, query)} | " + " | ".join(f"{number:,}" for number in (*sums, count)) + " |", flush=True)
