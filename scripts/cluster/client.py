"""Queries on the cluster: by `tprof sql --remote`, or by PySpark's own client where the tested program has no such option."""

import re
import subprocess
from pathlib import Path

from compare import asked, views


def cluster(sql, port, dataset):
    """What answers a query over a data set or an archive with rows: dictionaries without unknown values."""
    address = f"sc://127.0.0.1:{port}"
    if "--remote" in subprocess.run([sql, "--help"], capture_output=True, text=True, check=True).stdout:
        return lambda query: asked(sql, dataset, query, "--remote", address)[0]
    return PySpark(address, dataset, views(sql)[0]).rows


def tables(dataset):
    """Names of the tables of a data set or an archive: its directories."""
    return sorted(path.name for path in Path(dataset).iterdir() if path.is_dir() and not path.name.startswith("_"))


class PySpark:
    """A session with the tables of one data set and the views over them."""

    def __init__(self, address, dataset, text):
        from pyspark.sql.connect.session import SparkSession

        self.session = SparkSession.builder.remote(address).create()
        for name in tables(dataset):
            files = self.session.read.option("recursiveFileLookup", "true").parquet(f"file://{dataset}/{name}")
            files.createOrReplaceTempView(name)
        for view in re.split(r"(?m)^CREATE VIEW ", text)[1:]:
            self.session.sql("CREATE OR REPLACE TEMPORARY VIEW " + view.strip().rstrip(";"))

    def rows(self, query):
        table = self.session.sql(query).toArrow()
        return [{key: value for key, value in row.items() if value is not None} for row in table.to_pylist()]
