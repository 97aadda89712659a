"""Runs the views on Daft, on a Ray cluster of two workers on this host, and with one of its workers killed:

    daft_ray.py TPROF-SQL DATASET…

It is a program of its own, because it runs in the Python that has Daft.
"""

import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

os.environ.update(DAFT_PROGRESS_BAR="0", DAFT_ANALYTICS_ENABLED="0", DO_NOT_TRACK="1", RAY_USAGE_STATS_ENABLED="0")

import daft
import ray
from compare import asked, compare, difference, views
from daft import Session
from kills import QUERIES
from ray.cluster_utils import Cluster

NODE = {"object_store_memory": 512 << 20}


def session(dataset, text):
    """Returns a session with the tables of a data set and the views over them."""
    made = Session()
    for path in Path(dataset).iterdir():
        if path.is_dir() and not path.name.startswith("_"):
            made.create_temp_table(path.name, daft.read_parquet(f"{path}/**/*.parquet", hive_partitioning=False))
    for view in re.split(r"(?m)^CREATE VIEW ", text)[1:]:
        name, query = re.match(r"(\w+) AS\n(.*?);", re.sub(r"(?m)^\s*--.*\n", "", view), re.DOTALL).groups()
        made.create_temp_table(name, made.sql(query))
    return lambda query: [
        {key: value for key, value in row.items() if value is not None} for row in made.sql(query).to_pylist()
    ]


def workers(node):
    """Returns the processes of a node that run tasks: children of its raylet."""
    raylet = node.all_processes["raylet"][0].process.pid
    pids = [int(pid) for task in Path(f"/proc/{raylet}/task").glob("*/children") for pid in task.read_text().split()]
    busy = {pid: seconds(pid) for pid in pids}
    time.sleep(0.5)
    return [pid for pid in pids if seconds(pid) - busy[pid] > 0.1]


def seconds(pid):
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def killed(sql, ask, nodes, dataset, kind):
    """Kills the processes that compute on the first worker in the middle of a query. Returns what is wrong
    afterwards."""
    wanted, _ = asked(sql, dataset, QUERIES[kind])
    began = time.monotonic()
    if problem := difference(wanted, ask(QUERIES[kind])):
        return f"wrong without a kill:\n{problem}"
    undisturbed = time.monotonic() - began
    limit = max(60, 5 * undisturbed)
    found = []

    def run():
        try:
            found.append(ask(QUERIES[kind]))
        except Exception as error:  # Ray and Daft raise many kinds; each is a failed query.
            found.append(error)

    query = threading.Thread(target=run, daemon=True)
    query.start()
    time.sleep(1)
    victims = []
    while query.is_alive() and not victims:
        victims = workers(nodes[0])
    if not victims:
        return f"the query ended before a worker was busy: {found[0] if isinstance(found[0], Exception) else 'with rows'}"
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    began = time.monotonic()
    query.join(limit)
    if not found:
        return f"no end within {limit:.0f} s after the kill; without one it takes {undisturbed:.1f} s"
    if isinstance(found[0], Exception):
        return f"{time.monotonic() - began:.1f} s after the kill: {type(found[0]).__name__}: {str(found[0])[:600]}"
    return difference(wanted, found[0])


def main():
    sql, *datasets = sys.argv[1:]
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0, "include_dashboard": False})
    wrong = 0
    try:
        nodes = [cluster.add_node(num_cpus=1, **NODE) for _ in range(2)]
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
        daft.set_runner_ray()
        print(f"Daft {daft.__version__} on Ray {ray.__version__} with 2 workers", flush=True)
        text, _ = views(sql)
        for dataset in map(Path, datasets):
            differ, _ = compare(sql, session(dataset, text), dataset, 64)
            wrong += len(differ)
        for kind in QUERIES:
            problem = killed(sql, session(datasets[-1], text), nodes, datasets[-1], kind)
            print(f"{'ok  a worker killed: right result' if problem is None else 'WRONG  a worker killed'} ({kind} query)")
            if problem is not None:
                print(problem, flush=True)
                wrong += 1
    finally:
        ray.shutdown()
        cluster.shutdown()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
