"""Queries through PySpark's own Spark Connect client: rows as dictionaries without unknown values."""

import json
import re
from pathlib import Path

from pyspark.sql.connect.session import SparkSession


def tables(dataset):
    """Names of the tables of a data set or an archive: its directories."""
    return sorted(path.name for path in Path(dataset).iterdir() if path.is_dir() and not path.name.startswith("_"))


class Client:
    """A session with the tables of one data set and the views over them."""

    def __init__(self, port, dataset, views):
        self.session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
        for name in tables(dataset):
            files = self.session.read.option("recursiveFileLookup", "true").parquet(f"file://{dataset}/{name}")
            files.createOrReplaceTempView(name)
        for view in re.split(r"(?m)^CREATE VIEW ", views)[1:]:
            self.session.sql("CREATE OR REPLACE TEMPORARY VIEW " + view.strip().rstrip(";"))

    def rows(self, query):
        table = self.session.sql(query).toArrow()
        return [{key: value for key, value in row.items() if value is not None} for row in table.to_pylist()]
