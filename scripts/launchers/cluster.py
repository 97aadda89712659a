"""Runs a Slurm of three nodes on this host, which starts and ends with the facts about it.

Each node is a `slurmd` with a name of its own. n1 is the host itself. n2 has its own host name, /tmp and /dev/shm, like
another machine. n3 also lacks root's cache of tprof's libraries. All nodes share the files under TPROF_TEST_ROOT.
"""

import os
import pathlib
import secrets
import shutil
import socket
import subprocess
import time

from case import ENVIRONMENT, ROOT, run

CONFIGURATION = """
ClusterName=tprof
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={work}/munge/socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
JobRequeue=1
KillWait=5
OverTimeLimit=0
SchedulerParameters=batch_sched_delay=0,sched_interval=5,sched_min_interval=0,bf_interval=5
StateSaveLocation={work}/state
SlurmctldPidFile={work}/slurmctld.pid
SlurmctldLogFile={work}/slurmctld.log
SlurmdSpoolDir={work}/spool.%n
SlurmdPidFile={work}/slurmd.%n.pid
SlurmdLogFile={work}/slurmd.%n.log
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={port1} CPUs=8
NodeName=n2 NodeHostname=n2 NodeAddr=127.0.0.1 Port={port2} CPUs=8
NodeName=n3 NodeHostname=n3 NodeAddr=127.0.0.1 Port={port3} CPUs=8
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
PartitionName=bare Nodes=n1,n3 MaxTime=INFINITE State=UP
"""

# Makes a node look like another machine; n3 also has no library installed.
APART = "hostname {node} && mount -t tmpfs tmpfs /tmp && mount -t tmpfs tmpfs /dev/shm"
BARE = " && mount -t tmpfs tmpfs /var/cache"


class Cluster:
    def __init__(self):
        self.work = ROOT / "slurm"
        for part in ["", "munge", "state", "spool.n1", "spool.n2", "spool.n3"]:
            (self.work / part).mkdir(mode=0o755, exist_ok=True)
        first = 20000 + secrets.randbelow(20000)
        text = CONFIGURATION.format(
            work=self.work, host=socket.gethostname(), port=first, port1=first + 1, port2=first + 2, port3=first + 3
        )
        self.configuration = self.work / "slurm.conf"
        self.configuration.write_text(text)
        self.environment = {"SLURM_CONF": str(self.configuration)}
        self.children = []
        try:
            self.start()
        except Exception:
            self.stop()
            raise

    def start(self):
        munge = self.work / "munge"
        key = munge / "key"
        key.write_bytes(secrets.token_bytes(64))
        key.chmod(0o400)
        self.spawn(["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}/socket",
                    f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed"])
        self.await_true(lambda: (munge / "socket").exists(), "munged")
        self.spawn(["slurmctld", "-D", "-i", "-f", self.configuration])
        self.spawn(["slurmd", "-D", "-f", self.configuration, "-N", "n1"])
        for node, apart in [("n2", APART), ("n3", APART + BARE)]:
            daemon = f"exec slurmd -D -f {self.configuration} -N {node}"
            script = f"{apart.format(node=node)} && {daemon}"
            self.spawn(["unshare", "--uts", "--mount", "--propagation", "private", "sh", "-c", script])
        def idle():
            nodes = run(["sinfo", "-h", "-N", "-o", "%n %t"], ROOT, self.environment).stdout.split()
            return nodes.count("idle") >= 4
        self.await_true(idle, "the nodes")

    def spawn(self, words):
        log = open(self.work / "daemons.log", "a")
        environment = ENVIRONMENT | self.environment
        self.children.append(
            subprocess.Popen([str(word) for word in words], cwd=self.work, env=environment,
                             stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        )

    def await_true(self, is_true, what, seconds=60):
        end = time.monotonic() + seconds
        while not is_true():
            if time.monotonic() > end:
                logs = "".join(path.read_text()[-3000:] for path in self.work.glob("*.log"))
                raise RuntimeError(f"Slurm did not start: {what}\n{logs}")
            time.sleep(0.2)

    def stop(self):
        run("scancel --full --signal=KILL -u root; sleep 1", ROOT, self.environment, limit=20)
        for child in reversed(self.children):
            child.terminate()
        for child in self.children:
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    # Submits a batch script, and returns its job number.
    def submit(self, script, directory, *options):
        path = pathlib.Path(directory) / "batch.sh"
        path.write_text("#!/bin/sh\n" + script)
        submitted = run(["sbatch", "--parsable", "--open-mode=append", "-o", "out", "-e", "err", *options, path], directory, self.environment)
        if submitted.status != 0:
            raise RuntimeError(str(submitted))
        return submitted.stdout.strip()

    def state(self, job):
        text = run(["scontrol", "-o", "show", "job", job], ROOT, self.environment).stdout
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def await_state(self, job, states, seconds=90):
        end = time.monotonic() + seconds
        while (now := self.state(job)).get("JobState") not in states:
            if time.monotonic() > end:
                raise RuntimeError(f"job {job} is {now.get('JobState')} after {seconds} s, not {states}")
            time.sleep(0.2)
        return now

    def await_end(self, job, seconds=120):
        return self.await_state(job, ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"], seconds)
