"""Checks the documents.

- Every command line in README.md and the guide that begins with `tprof` parses,
  and every report and export in them works, on a small run.
- Every relative link leads to a file, and to a heading in it.
- Each term is in the glossary once.
- No file in version control contains a path of the developer's machine, or a word that marks unfinished work.
"""

import gzip
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TPROF = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release/tprof"
WITH_COMMANDS = ["README.md", "python/README.md", "docs/guide.md", "docs/examples.md"]
UNFINISHED = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX|T" r"BD)\b")


def command_lines(text):
    """Yields the lines in shell blocks; a `$(tprof …)` becomes a line of its own."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            inner = re.search(r"\$\((tprof [^)]*)\)", line)
            if inner:
                yield inner[1]
            elif line.startswith("tprof "):
                yield line


def run(words, cwd):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TPROF_")}
    return subprocess.run(
        [str(TPROF), *words], cwd=cwd, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
    )


def small_trace(path):
    """Writes a trace as torch.profiler would: three steps of one kernel each."""
    events = []
    for step in range(3):
        at = 1000.0 + 100 * step
        common = {"ph": "X", "pid": 7, "tid": 7}
        events += [
            {**common, "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": 90},
            {**common, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 5, "dur": 4,
             "args": {"correlation": step + 1}},
            {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": at + 20, "dur": 50,
             "args": {"device": 0, "stream": 7, "correlation": step + 1}},
        ]
    with gzip.open(path, "wt") as file:
        json.dump({"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": events}, file)


def provide(word, cwd, small_run, traced):
    """Makes what a command line names: a trace, a run, or a run made of a trace."""
    target = cwd / word
    if target.exists() or word.startswith("-"):
        return
    if word.endswith(".json.gz"):
        small_trace(target)
    elif word.endswith(".pickle"):
        shutil.copy(ROOT / "crates/import/tests/corpus/snapshot-newer.pickle", target)
    elif word == "traces/":
        target.mkdir()
        small_trace(target / "rank-0.json.gz")
    elif re.fullmatch(r"[a-z]+[-a-z0-9]*/kineto", word):
        # Windows of PyTorch's profiler are stored in a run of their own, within the run.
        shutil.copytree(small_run, target.parent)
        small_trace(cwd / "trace.json.gz")
        run(["import", "trace.json.gz", "-o", word], cwd)
    elif re.fullmatch(r"[a-z]+[-a-z0-9]*", word) and traced:
        small_trace(cwd / "trace.json.gz")
        run(["import", "trace.json.gz", "-o", word], cwd)
    elif re.fullmatch(r"[a-z]+[-a-z0-9]*", word):
        shutil.copytree(small_run, target)


def names_of_kinds(command):
    """Kinds of reports, or formats of exports, as their help lists them."""
    help_text = run([command, "--help"], ROOT).stdout
    return set(re.findall(r"^  ([a-z][-a-z]*)  ", help_text, re.MULTILINE))


def check_command(line, cwd, small_run, kinds):
    """Returns the fault of a command line, or None."""
    words = shlex.split(line, comments=True)[1:]
    if ">" in words:
        words = words[: words.index(">")]
    command = words[0]
    if command == "run":
        done = run(["run", "--dry-run", *words[1:]] if "--dry-run" not in words else words, cwd)
    elif command in ("report", "export", "diff", "compare", "import"):
        for before, word in zip(words, words[1:]):
            if word not in kinds.get(command, ()) and before not in ("-o", "--fail-on"):
                provide(word, cwd, small_run, command in ("diff", "compare"))
        # The small run has only rank 0.
        words = ["0" if words[i - 1] == "--rank" else word for i, word in enumerate(words)]
        done = run([*words, "--force"] if command == "export" else words, cwd)
    elif command in ("ctl", "open", "attach", "serve", "top", "where", "sql", "archive"):
        done = run([*words, "--help"], cwd)
    else:
        done = run(words, cwd)
        if command == "doctor":
            return None if "error:" not in done.stdout else done.stdout
    return None if done.returncode == 0 else done.stdout


def check_commands():
    wrong, count = [], 0
    with tempfile.TemporaryDirectory(prefix="tprof-docs-") as scratch:
        small_run = pathlib.Path(scratch) / "small"
        done = run(["run", "--quiet", "-o", str(small_run), "--", "true"], scratch)
        if done.returncode != 0:
            return [f"cannot record a run to try the commands on: {done.stdout}"], 0
        kinds = {command: names_of_kinds(command) for command in ("report", "export")}
        for name in WITH_COMMANDS:
            for number, line in enumerate(command_lines((ROOT / name).read_text())):
                cwd = pathlib.Path(scratch) / f"{name.replace('/', '-')}-{number}"
                cwd.mkdir()
                shutil.copy("/bin/true", cwd / "server")
                count += 1
                problem = check_command(line, cwd, small_run, kinds)
                if problem:
                    wrong.append(f"{name}: `{line}` does not work:\n{problem.rstrip()}")
    return wrong, count


def anchors(document):
    """Returns the anchors of a document's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    seen = []
    for heading in re.findall(r"^#+ +(.+)$", text, re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading.lower()))
        anchor = words.strip().replace(" ", "-")
        count = seen.count(anchor)
        seen.append(anchor)
        yield f"{anchor}-{count}" if count else anchor


def check_links(documents):
    for path in documents:
        for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
            place, _, anchor = target.partition("#")
            linked = path.parent / place if place else path
            if ":" in place:
                continue
            if not linked.exists():
                yield f"{path.relative_to(ROOT)}: the link to {target} leads nowhere"
            elif anchor and linked.suffix == ".md" and anchor not in anchors(linked):
                yield f"{path.relative_to(ROOT)}: {target}: the document has no such heading"


def kept_files():
    """Returns the files that version control keeps or would keep; without it, all files."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False,
    )
    if listed.returncode == 0:
        return [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [p for p in ROOT.rglob("*") if p.is_file() and "target" not in p.parts]


def check_words():
    # Paths of this checkout and of the folder next to it are searched for, unless the names are too common.
    places = [str(ROOT), str(pathlib.Path.home())]
    places = [place.encode() for place in places if place.count("/") > 1]
    for path in kept_files():
        try:
            content = path.read_bytes()
        except OSError:
            continue
        name = path.relative_to(ROOT)
        if any(place in content for place in places):
            yield f"{name}: names the directory in which it was made"
        if b"\0" in content[:4096]:
            continue
        for number, line in enumerate(content.decode(errors="replace").splitlines(), start=1):
            if UNFINISHED.search(line):
                yield f"{name}:{number}: unfinished: {line.strip()}"


def check_glossary():
    terms = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    terms = [term for term in terms if term not in ("term", "---")]
    for term in sorted({term for term in terms if terms.count(term) > 1}):
        yield f"docs/glossary.md: `{term}` is there twice"


def main():
    documents = [ROOT / "README.md", ROOT / "python/README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    documents = [path for path in documents if path.exists()]
    if not TPROF.exists():
        sys.exit(f"there is no {TPROF}: cargo build --release -p tprof-cli")
    wrong, count = check_commands()
    wrong += [*check_links(documents), *check_glossary(), *check_words()]
    for line in wrong:
        print(line, file=sys.stderr)
    if not wrong:
        print(f"{count} command lines work; {len(documents)} documents")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
