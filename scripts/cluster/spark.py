"""A Spark standalone cluster on loopback: master, workers, a Spark Connect server.

All of it lies in one directory and listens on free ports of 127.0.0.1. It ends with `stop`, which kills only the
process groups that this file started. Facts about stages and executors come from Spark's own REST interface, on the
port of its web interface.
"""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

HOME = Path(os.environ["TPROF_TEST_SPARK"])
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
# Enough for data sets of 1,024 ranks. Three executors, the driver and the daemons need at most 5 GiB.
EXECUTOR_MEMORY, DRIVER_MEMORY, DAEMON_MEMORY = "900m", "1g", "256m"
START_S = 180
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.executor.memory": EXECUTOR_MEMORY,
    "spark.executor.cores": "1",
    # Figures of running tasks must be current, because the tests decide by them.
    "spark.executor.heartbeatInterval": "1s",
    "spark.executor.metrics.pollingInterval": "1s",
    "spark.ui.liveUpdate.period": "0",
    # Otherwise executors on one host read each other's files, and the output of a lost executor would still be there.
    "spark.shuffle.readHostLocalDisk": "false",
    # Many tasks per stage although the data is small, so that a kill hits a running stage.
    "spark.sql.files.openCostInBytes": "16m",
    "spark.sql.files.maxPartitionBytes": "16m",
    "spark.sql.shuffle.partitions": "24",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
}


def free_ports(count):
    """Returns ports that nothing listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def listens(port):
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=120) as answer:
        return json.load(answer)


def cpu_seconds(pid):
    """Returns the processor time of a process and of its children that ended, or 0 once the process is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


class Spark:
    """The cluster, as a context manager: it is started on entry, and stopped on exit even after an error."""

    def __init__(self, folder, workers):
        self.folder, self.count, self.processes = Path(folder), workers, {}

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def launch(self, name, *words, memory=DAEMON_MEMORY):
        """Starts a part of the cluster, with its output in NAME.log."""
        environment = {
            **os.environ,
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": memory,
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_WORKER_DIR": str(self.folder / "work"),
            "SPARK_CONF_DIR": str(self.folder),
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={self.folder} -XX:-UsePerfData",
        }
        with open(self.folder / f"{name}.log", "wb") as log:
            self.processes[name] = subprocess.Popen(
                [str(word) for word in words], cwd=self.folder, env=environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )

    def start(self):
        self.folder.mkdir(parents=True)
        master, web, self.connect, self.ui = free_ports(4)
        self.address = f"spark://127.0.0.1:{master}"
        spark_class = HOME / "bin/spark-class"
        self.launch("master", spark_class, "org.apache.spark.deploy.master.Master",
                    "--host", "127.0.0.1", "--port", master, "--webui-port", web)
        self.wait("the master", lambda: listens(web))
        for number in range(self.count):
            self.launch(f"worker-{number}", spark_class, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1",
                        "--cores", 1, "--memory", "1g", "--webui-port", free_ports(1)[0], self.address)
        alive = lambda: get(web, "/json/")["aliveworkers"] == self.count
        self.wait("the workers", alive)
        settings = {**SETTINGS, "spark.connect.grpc.binding.port": self.connect, "spark.ui.port": self.ui}
        self.launch("connect", HOME / "bin/spark-submit", "--class", CONNECT, "--name", "tprof", "--master", self.address,
                    *(word for key in settings for word in ("--conf", f"{key}={settings[key]}")),
                    "spark-internal", memory=DRIVER_MEMORY)
        self.wait("the Spark Connect server", lambda: listens(self.connect) and listens(self.ui))
        self.application = self.wait("the application", lambda: get(self.ui, "/api/v1/applications")[0]["id"])
        self.wait("the executors", lambda: len(self.executors()) == self.count)

    def wait(self, what, ready):
        """Waits until `ready` returns a true value, and returns that value."""
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended with {process.returncode}:\n{self.tail(name)}")
            try:
                if answer := ready():
                    return answer
            except (urllib.error.URLError, OSError, IndexError, json.JSONDecodeError):
                pass
            time.sleep(0.2)
        raise RuntimeError(f"{what} did not start within {START_S} s:\n" + "\n".join(map(self.tail, self.processes)))

    def tail(self, name):
        lines = (self.folder / f"{name}.log").read_text(errors="replace").splitlines()
        return "\n".join(f"{name}: {line}" for line in lines[-15:])

    def rest(self, path):
        return get(self.ui, f"/api/v1/applications/{self.application}{path}")

    def executors(self, gone=False):
        """Returns Spark's facts about each executor by its id; with `gone`, lost ones too."""
        rows = self.rest("/allexecutors" if gone else "/executors")
        return {row["id"]: row for row in rows if row["id"] != "driver"}

    def executor_pids(self):
        """Returns the processes of executors, which are children of this cluster's workers, by executor id."""
        pids = {}
        for name, worker in self.processes.items():
            if not name.startswith("worker-"):
                continue
            for child in Path(f"/proc/{worker.pid}/task").glob("*/children"):
                for pid in child.read_text().split():
                    try:
                        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                    except (FileNotFoundError, ProcessLookupError):
                        continue
                    if "--executor-id" in words:
                        pids[words[words.index("--executor-id") + 1]] = int(pid)
        return pids

    def cpu(self):
        """Returns the processor seconds so far of the live executors, and of the server that plans for them."""
        pids = [self.processes["connect"].pid, *self.executor_pids().values()]
        return sum(map(cpu_seconds, pids))

    def stop(self):
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            for process in reversed(self.processes.values()):
                try:
                    os.killpg(process.pid, signal_number)
                except ProcessLookupError:
                    pass
            until = time.monotonic() + 10
            while time.monotonic() < until and any(process.poll() is None for process in self.processes.values()):
                time.sleep(0.1)
