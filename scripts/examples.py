#!/usr/bin/env python3
"""Runs real programs under tprof and puts what it printed into the documents.

    scripts/examples.py [--torch PYTHON] [--numpy PYTHON] [NAME…]

Text between `<!-- NAME begins -->` and `<!-- NAME ends -->` in README.md,
docs/guide.md and docs/examples.md is replaced. A program that is not installed
keeps the text that is there; PYTHON is one that can import torch, or NumPy. Uses
target/release/tprof; commands are shown as typed, with its name alone.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "docs/guide.md", ROOT / "docs/examples.md"]
PORT = "7391"


class Desk:
    """A scratch directory in which commands run as a user would type them."""

    def __init__(self, path):
        self.path = path
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("TPROF_")}
        self.environment["PATH"] = f"{path}/bin:{os.environ['PATH']}"
        (path / "bin").mkdir()
        (path / "bin/tprof").symlink_to(ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release/tprof")
        # The interpreter itself, not a version manager's script.
        for name in ["/usr/bin/python3"]:
            if os.path.exists(name):
                (path / "bin/python3").symlink_to(name)
        (path / "examples").symlink_to(ROOT / "examples")

    def sh(self, command):
        """Runs a command and returns its standard output and error together, in order."""
        done = subprocess.run(
            ["sh", "-c", command], cwd=self.path, env=self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )
        if done.returncode != 0:
            sys.exit(f"{command}: status {done.returncode}\n{done.stdout}")
        return done.stdout


def fenced(*parts):
    text = "\n".join(part.rstrip("\n") for part in parts)
    return "```text\n" + "\n".join(line.rstrip() for line in text.splitlines()) + "\n```"


def section(report, *titles, until="\n\n"):
    """Returns the parts of a report that begin with these titles."""
    found = []
    for title in titles:
        start = report.index(title)
        end = report.find(until, start)
        found.append(report[start : end if end >= 0 else len(report)])
    return "\n\n".join(found)


def shown(desk, name, command, before="", top=3):
    """Returns a recorded command, its own output, and the report."""
    output = desk.sh(f"tprof run -o {name} -- {command}")
    report = desk.sh(f"tprof report {name} --top {top}")
    typed = f"{before}tprof run -o {name} -- {command}"
    return f"```sh\n{typed}\n```\n\n" + fenced(output) + f"\n\n```sh\ntprof report {name} --top {top}\n```\n\n" + fenced(report)


def demo(desk):
    """Returns the three commands of the README with their output, shortened."""
    output = desk.sh("tprof run -o clicks --stacks python -- python3 examples/clicks.py")
    findings = desk.sh("tprof report findings clicks").split("\n\n")
    growth = next(card for card in findings if ": HeapGrowth" in card)
    desk.sh("tprof run -o fixed --stacks python -- python3 examples/clicks.py --keep id")
    compared = desk.sh("tprof diff clicks fixed")
    return {
        "readme-run": fenced(output[output.index("tprof ") :]),
        "readme-findings": fenced("...", growth, "..."),
        "readme-diff": fenced(section(compared, "Memory at its peak")),
    }


def clicks(desk):
    output = desk.sh("tprof run -o clicks --stacks python -- python3 examples/clicks.py")
    memory = desk.sh("tprof report memory clicks --top 3")
    fixed = desk.sh("tprof run -o clicks-fixed --stacks python -- python3 examples/clicks.py --keep id")
    return {
        "guide-summary": fenced(output),
        "guide-sites": fenced(section(memory, "Top sites")),
        "guide-growth": fenced(section(memory, "Growth")),
        "guide-fixed": fenced(fixed),
    }


def gcc(desk):
    desk.sh("python3 examples/functions.py 1000 > functions.c")
    before = "python3 examples/functions.py 1000 > functions.c\n"
    return {"gcc": shown(desk, "gcc", "gcc -O2 -c functions.c", before)}


def sqlite(desk):
    return {"sqlite": shown(desk, "sqlite", "sqlite3 :memory: '.read examples/orders.sql'")}


def documents(desk):
    return {"json": shown(desk, "json", "python3 examples/documents.py")}


def redis(desk):
    server = f"redis-server --port {PORT} --save '' --logfile redis.log"
    job = subprocess.Popen(
        ["sh", "-c", f"exec tprof run -o redis -- {server}"], cwd=desk.path, env=desk.environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    for _ in range(100):
        if subprocess.run(["redis-cli", "-p", PORT, "ping"], capture_output=True, check=False).returncode == 0:
            break
        time.sleep(0.1)
    load = f"redis-benchmark -p {PORT} -q -n 50000 -r 20000 -d 500 -t set,get,lpush"
    desk.sh(load)
    status = desk.sh("tprof ctl status redis")
    desk.sh(f"redis-cli -p {PORT} shutdown nosave || true")
    output, _ = job.communicate(timeout=60)
    report = desk.sh("tprof report redis --top 3")
    return {
        "redis": f"```sh\ntprof run -o redis -- {server}\n```\n\nFrom another terminal:\n\n```sh\n{load}\n"
        + "tprof ctl status redis\n```\n\n" + fenced(status) + f"\n\n```sh\nredis-cli -p {PORT} shutdown nosave\n```\n\n"
        + fenced(output) + "\n\n```sh\ntprof report redis --top 3\n```\n\n" + fenced(report)
    }


def torch(desk, python):
    home = os.path.dirname(os.path.abspath(python))
    desk.environment["PATH"] = f"{home}:{desk.environment['PATH']}"
    desk.environment["OMP_NUM_THREADS"] = "1"
    command = "python -m torch.distributed.run --standalone --nproc-per-node 2 examples/ddp.py"
    return {"torch": shown(desk, "ddp", command)}


def loader(desk, python):
    """Returns two runs of an unchanged training, and their differences."""
    home = os.path.dirname(os.path.abspath(python))
    desk.environment["PATH"] = f"{home}:{desk.environment['PATH']}"
    commands = [
        "tprof run -o before -- python examples/loader.py",
        "tprof run -o after -- python examples/loader.py --cache",
        "tprof diff before after",
    ]
    report = [desk.sh(command) for command in commands][-1]
    return {"loader": "```sh\n" + "\n".join(commands) + "\n```\n\n" + fenced(section(report, "Time of a step"))}


def compiled(desk, python):
    """Reports what torch.compile made of a training, with nothing in its caches."""
    home = os.path.dirname(os.path.abspath(python))
    desk.environment["PATH"] = f"{home}:{desk.environment['PATH']}"
    desk.environment["TORCHINDUCTOR_CACHE_DIR"] = f"{desk.path}/caches"
    desk.sh("tprof run -o compiled --compile --operators names -- python examples/compiled.py")
    report = desk.sh("tprof report compile compiled --top 4")
    parts = [section(report, title) for title in ("Compiled functions", "Graph breaks", "Recompilations", "Runs of compiled code")]
    return {"compiled": fenced("\n\n".join(parts))}


def train(desk, python):
    home = os.path.dirname(os.path.abspath(python))
    desk.environment["PATH"] = f"{home}:{desk.environment['PATH']}"
    texts = {}
    for name, before in [("train", ""), ("train-one", "OPENBLAS_NUM_THREADS=1 ")]:
        output = desk.sh(f"{before}tprof run -o {name} -- python3 examples/train.py")
        report = desk.sh(f"tprof report cpu {name} --top 3")
        parts = [section(report, "Python functions"), section(report, "Modules")]
        texts[name] = fenced(output[output.index("tprof ") :], "...", "\n\n".join(parts))
    return texts


def replace(texts):
    for path in DOCUMENTS:
        old = new = path.read_text()
        for name, text in texts.items():
            pattern = rf"(<!-- {name} begins -->\n).*?(<!-- {name} ends -->)"
            new = re.sub(pattern, lambda m, text=text: f"{m[1]}{text}\n{m[2]}", new, flags=re.DOTALL)
        if new != old:
            path.write_text(new)
            print(f"{path.relative_to(ROOT)} is up to date", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", metavar="PYTHON")
    parser.add_argument("--numpy", metavar="PYTHON")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    jobs = {
        "demo": (demo, ["python3"]),
        "clicks": (clicks, ["python3"]),
        "gcc": (gcc, ["gcc", "python3"]),
        "sqlite": (sqlite, ["sqlite3"]),
        "json": (documents, ["python3"]),
        "redis": (redis, ["redis-server", "redis-benchmark"]),
    }
    if options.torch:
        jobs["torch"] = (lambda desk: torch(desk, options.torch), [])
        jobs["compiled"] = (lambda desk: compiled(desk, options.torch), [])
        jobs["loader"] = (lambda desk: loader(desk, options.torch), [])
    if options.numpy:
        jobs["train"] = (lambda desk: train(desk, options.numpy), [])
    for name, (job, wanted) in jobs.items():
        if options.names and name not in options.names:
            continue
        missing = [program for program in wanted if not shutil.which(program)]
        if missing:
            print(f"{name}: skipped, {', '.join(missing)} missing", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory(prefix="examples-") as scratch:
            replace(job(Desk(pathlib.Path(scratch).resolve())))


if __name__ == "__main__":
    main()
