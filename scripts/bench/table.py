"""Writes the table as text, as JSON and into docs/notes/overhead-bench.md."""

import json
import os
import platform
import subprocess
import time

BEGIN, END = "<!-- bench.sh begins -->", "<!-- bench.sh ends -->"
# CPU use of other programs above which wall time is not trusted.
DISTURBED = 0.15


def machine(root, args):
    def git(*words):
        done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else None

    with open("/proc/cpuinfo") as info:
        models = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    commit = git("rev-parse", "--short=12", "HEAD")
    if commit and git("status", "--porcelain", "--untracked-files=no"):
        commit += " with changes"
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": commit,
        "kernel": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()),
        "cpu": models[0] if models else platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "load_at_start": round(os.getloadavg()[0], 2),
        "quick": args.quick,
    }


def number(value):
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def grid(head, lines):
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    rule = ["-" * width for width in widths]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in [head, rule, *lines]]


def verdicts(rows):
    lines = []
    for row in rows:
        if row["target"] is None:
            verdict = "-"
        elif row["value"] is None:
            verdict = row.get("why", "not measured")
        else:
            at_least = row.get("at_least", False)
            met = row["value"] >= row["target"] if at_least else row["value"] <= row["target"]
            verdict = "met" if met else "MISSED"
        row["verdict"] = verdict
        sign = ">=" if row.get("at_least") else "<="
        target = "-" if row["target"] is None else f"{sign} {row['target']:g}"
        lines.append([row["what"], number(row["value"]), row["unit"], target, verdict, row.get("basis", "")])
    return grid(["what", "tprof", "unit", "target", "", "clock"], lines)


def costs(sections):
    lines = [
        [
            section["workload"],
            entry["contender"],
            number(entry["died"] or entry["slice"]),
            number(entry["wall"]),
            number(entry["cpu"]),
            number(entry["wait"]),
            number(entry["ratio"]),
            number(entry["bytes"]),
            number(entry["others"]),
            str(entry["pairs"]),
        ]
        for section in sections
        for entry in section["entries"]
    ]
    return grid(["workload", "contender", "slice", "wall", "cpu", "waits", "ratio", "B/event", "others", "pairs"], lines)


def text(result):
    about = result["machine"]
    facts = [
        f"{about['cpu']}, {about['cpus']} CPUs, {about['kernel']}, {about['libc']}",
        f"{about['date']}, commit {about['commit'] or 'unknown'}, load {about['load_at_start']} at start"
        + (", --quick" if about["quick"] else ""),
        *result["notes"],
    ]
    lines = [*facts, "", *verdicts(result["rows"])] if result["rows"] else facts
    if result["sections"]:
        lines += ["", "Added ns per event in the workload's own loop (ratio: whole run, wall):", "", *costs(result["sections"])]
    for table in result["tables"]:
        lines += ["", table]
    return "\n".join(lines)


def write_json(path, result):
    with open(path, "w") as out:
        json.dump(result, out, indent=1)
        out.write("\n")


def write_docs(path, table):
    with open(path) as page:
        whole = page.read()
    before, rest = whole.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    with open(path, "w") as page:
        page.write(f"{before}{BEGIN}\n```\n{table}\n```\n{END}{after}")
