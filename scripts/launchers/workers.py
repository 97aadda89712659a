"""Facts about pools and servers of Python that start workers: all workers are recorded.

TPROF_TEST_WORKERS is a Python with the packages of workers.txt. Without it, only multiprocessing is tested, in python3.
"""

import os
import pathlib
import shutil
import subprocess
import time

from case import ENVIRONMENT, TPROF, LauncherCase

PYTHON = os.environ.get("TPROF_TEST_WORKERS") or shutil.which("python3")
BIN = pathlib.Path(PYTHON).parent


def has(package):
    return subprocess.run([PYTHON, "-c", f"import {package}"], stderr=subprocess.DEVNULL, check=False).returncode == 0


class Workers(LauncherCase):
    # On a busy machine, stacks and Python frames may be lost; they are counted as losses.
    def assert_complete(self, report):
        self.assertEqual(report["completeness"]["blind"], [])

    def needs_package(self, package):
        if PYTHON == shutil.which("python3"):
            self.skipTest(f"{package}: TPROF_TEST_WORKERS names no Python")
        self.assertTrue(has(package), f"{PYTHON} has no {package}: pip install -r scripts/launchers/workers.txt")

    # The script prints the pids of its workers after `pids`.
    def assert_recorded(self, text, limit=180):
        script = self.directory / "job.py"
        script.write_text(text)
        bare = self.run_command([PYTHON, script], limit=limit)
        traced = self.traced([PYTHON, str(script)], limit=limit)
        self.assertEqual((bare.status, traced.status), (0, 0), traced)
        wanted = {int(word) for line in traced.lines() if line.startswith("pids") for word in line.split()[1:]}
        self.assertGreaterEqual(len(wanted), 2, traced)
        report = self.report()
        recorded = {image["pid"] for image in report["processes"] if image["lost"] is not None}
        self.assertEqual(wanted - recorded, set(), report["processes"])
        self.assert_complete(report)

    def test_pools_of_multiprocessing_are_whole(self):
        for method in ("fork", "spawn", "forkserver"):
            with self.subTest(method):
                self.run_directory = self.directory / method
                self.assert_recorded(
                    "import multiprocessing as m, os, time\n"
                    "def f(x):\n    time.sleep(0.2)\n    return os.getpid()\n"
                    "if __name__ == '__main__':\n"
                    f"    with m.get_context({method!r}).Pool(2) as pool:\n"
                    "        print('pids', *set(pool.map(f, range(6), chunksize=1)))\n"
                    "        pool.close(); pool.join()\n"
                )

    def test_workers_of_joblib_are_whole(self):
        self.needs_package("joblib")
        self.assert_recorded(
            "import os, time, joblib\n"
            "def f(x):\n    time.sleep(0.3)\n    return os.getpid()\n"
            "if __name__ == '__main__':\n"
            "    print('pids', *set(joblib.Parallel(2)(joblib.delayed(f)(x) for x in range(6))))\n"
            "    from joblib.externals.loky import get_reusable_executor as e\n"
            "    e().shutdown(wait=True)\n"
        )

    def test_a_local_cluster_of_dask_is_whole(self):
        self.needs_package("distributed")
        self.assert_recorded(
            "import os, time\n"
            "from distributed import Client, LocalCluster\n"
            "def f(x):\n    time.sleep(0.3)\n    return os.getpid()\n"
            "if __name__ == '__main__':\n"
            "    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as c, Client(c) as client:\n"
            "        print('pids', *set(client.gather(client.map(f, range(8)))))\n"
        )

    def test_tasks_and_actors_of_ray_are_whole(self):
        self.needs_package("ray")
        self.assert_recorded(
            "import os, time, ray\n"
            "ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)\n"
            "@ray.remote\n"
            "def f(x):\n    time.sleep(0.5)\n    return os.getpid()\n"
            "@ray.remote\n"
            "class A:\n    def pid(self): return os.getpid()\n"
            "pids = set(ray.get([f.remote(x) for x in range(6)])); a = A.remote()\n"
            "print('pids', *pids, ray.get(a.pid.remote()))\n"
            "ray.shutdown()\n",
            limit=400,
        )

    def test_daemons_of_ray_are_recorded_by_an_environment_around_start_and_job(self):
        self.needs_package("ray")
        script = self.directory / "job.py"
        script.write_text(
            "import os, time, ray\n"
            "ray.init(address='auto', log_to_driver=False)\n"
            "@ray.remote\n"
            "def f(x):\n    time.sleep(0.5)\n    return os.getpid()\n"
            "print('pids', *set(ray.get([f.remote(x) for x in range(6)])))\n"
        )
        ray = f"{PYTHON} -m ray.scripts.scripts"
        end = f"grep -q '\"finished\": true' {self.run_directory}/run.json"
        done = self.run_command(
            f'environment=$({TPROF} env -o {self.run_directory}) || exit; eval "$environment";'
            f" {ray} start --head --num-cpus=2 --include-dashboard=false --port=0 >&2 && {PYTHON} {script}; status=$?;"
            f" {ray} stop >&2; for i in $(seq 300); do {end} && break; sleep 0.1; done; exit $status",
            limit=400,
        )
        self.assertEqual(done.status, 0, done)
        wanted = {int(word) for line in done.lines() if line.startswith("pids") for word in line.split()[1:]}
        report = self.report()
        recorded = {image["pid"] for image in report["processes"]}
        self.assertEqual(wanted - recorded, set(), report["processes"])
        self.assertTrue(any("raylet" in image["command"] for image in report["processes"]))

    def test_the_kernel_of_a_notebook_can_be_attached_to(self):
        self.needs_package("ipykernel")
        (self.directory / "cell.py").write_text("def hot(n):\n    while n: n -= 1\nwhile True: hot(10**5)\n")
        log = open(self.directory / "log", "w")
        kernel = subprocess.Popen(
            [PYTHON, "-c", "import IPython, sys; IPython.start_ipython(['--no-banner', sys.argv[1]])", "cell.py"],
            cwd=self.directory, env=ENVIRONMENT, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        )
        try:
            time.sleep(4)
            attached = self.run_command([TPROF, "attach", "-q", "--duration", "3s", "-o", self.run_directory, kernel.pid])
        finally:
            kernel.kill()
            kernel.wait()
        self.assertEqual(attached.status, 0, attached)
        outcome = self.run_command([TPROF, "report", "cpu", self.run_directory])
        self.assertRegex(outcome.stdout, "hot", (self.directory / "log").read_text())

    def test_workers_of_xdist_are_whole(self):
        self.needs_package("xdist")
        (self.directory / "test_it.py").write_text(
            "import pytest\n@pytest.mark.parametrize('x', range(6))\ndef test_it(x): assert x < 9\n"
        )
        line = [PYTHON, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "test_it.py"]
        bare, traced = self.run_command(line), self.traced(line)
        self.assertEqual((bare.status, traced.status), (0, 0), traced)
        report = self.report()
        self.assertGreaterEqual(report["process_count"], 3)
        self.assert_complete(report)

    # Runs a server until it has answered, and ends it by SIGTERM.
    def assert_server(self, command, workers):
        log = open(self.directory / "log", "w")
        child = subprocess.Popen(
            [TPROF, "run", "-q", "-o", str(self.run_directory), "--", *command],
            cwd=self.directory, env=ENVIRONMENT, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
        )
        ready, end = False, time.monotonic() + 90
        while not ready and time.monotonic() < end and child.poll() is None:
            time.sleep(0.5)
            ready = (self.directory / "log").read_text().count("worker ready") >= workers
        child.terminate()
        child.wait(60)
        self.assertTrue(ready, (self.directory / "log").read_text())
        report = self.report()
        self.assertGreaterEqual(report["process_count"], workers + 1, report["processes"])
        self.assert_complete(report)

    def test_workers_of_gunicorn_and_uvicorn_are_whole(self):
        self.needs_package("gunicorn")
        (self.directory / "app.py").write_text(
            "import os\nos.write(2, b'worker ready\\n')\n"
            "def wsgi(e, s): s('200 OK', []); return [b'ok']\n"
            "async def asgi(scope, receive, send): pass\n"
        )
        address = f"unix:{self.directory}/socket"
        for name, command in [
            ("gunicorn", [PYTHON, "-m", "gunicorn", "-w", "2", "-b", address, "app:wsgi"]),
            ("uvicorn", [PYTHON, "-m", "uvicorn", "--workers", "2", "--lifespan", "off", "--port", "18431", "app:asgi"]),
        ]:
            with self.subTest(name):
                self.run_directory = self.directory / name
                self.assert_server(command, 2)

    def test_workers_of_celery_are_whole(self):
        self.needs_package("celery")
        (self.directory / "tasks.py").write_text(
            "import os\nfrom celery import Celery, signals\n"
            "app = Celery(broker='memory://')\n"
            "@signals.worker_process_init.connect\n"
            "def ready(**_): os.write(2, b'worker ready\\n')\n"
        )
        self.assert_server([PYTHON, "-m", "celery", "-A", "tasks", "worker", "-c", "2", "-P", "prefork"], 2)

    def test_the_kernel_of_a_notebook_is_whole(self):
        self.needs_package("nbconvert")
        (self.directory / "n.ipynb").write_text(
            '{"cells": [{"cell_type": "code", "source": "sum(range(10**6))", "metadata": {}, "outputs": [],'
            ' "execution_count": null}], "metadata": {}, "nbformat": 4, "nbformat_minor": 2}'
        )
        line = [PYTHON, "-m", "nbconvert", "--to", "notebook", "--execute", "--stdout", "n.ipynb"]
        traced = self.traced(line)
        self.assertEqual(traced.status, 0, traced)
        report = self.report()
        kernels = [image for image in report["processes"] if "ipykernel" in image["command"]]
        self.assertTrue(kernels, report["processes"])
        self.assert_complete(report)

    def test_tox_passes_the_environment_on_where_it_is_asked_to(self):
        self.needs_package("tox")
        for passed, is_recorded in (("", False), ("passenv = LD_PRELOAD, TPROF_*\n", True)):
            with self.subTest(passed):
                self.run_directory = self.directory / f"run{is_recorded}"
                (self.directory / "tox.ini").write_text(
                    "[tox]\nenv_list = a\nno_package = true\n[testenv]\nskip_install = true\n"
                    "commands = python -c 'import time; time.sleep(0.5)'\n" + passed
                )
                traced = self.traced([PYTHON, "-m", "tox", "-q"])
                self.assertEqual(traced.status, 0, traced)
                blind = " ".join(str(one) for one in self.report()["completeness"]["blind"])
                self.assertEqual("python" in blind, not is_recorded, blind)
