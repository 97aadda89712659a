"""The run that records this process, and commands of the program ``tprof`` that this process runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from . import _abi, _binary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

# The first of these that is set wins, in the order of RANK_VARIABLES in crates/wire/src/env.rs.
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
# Slurm steps from this number on (a batch script, a shell) are not ranks.
_SLURM_FIRST_OWN_STEP = 0xFFFFFFF0
_OURS = ("libtprof_preload.so", "libtprof_cupti.so")


def _number(name: str) -> Optional[int]:
    """Returns a variable as a number of 32 bits, or None if it isn't one."""
    text = os.environ.get(name, "").strip()
    if not (text.isascii() and text.isdigit()):
        return None
    number = int(text)
    return number if number < 1 << 32 else None


def rank() -> int:
    """Returns this process's rank in the run, by the variables of torchrun, Open MPI, PMIx, MPICH and Slurm
    (crates/collect/src/output/ranks.rs); without them it is 0."""
    step = _number("SLURM_STEP_ID")
    counts = {
        "RANK": bool(os.environ.get("WORLD_SIZE", "").strip()),
        "SLURM_PROCID": step is not None and step < _SLURM_FIRST_OWN_STEP,
    }
    for name in _RANKS:
        number = _number(name)
        if number is not None and counts.get(name, True):
            return number
    return 0


def torch_cuda() -> Optional[Any]:
    """Returns ``torch.cuda`` if this program has begun to use a device, else None. An import here would change that."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        return cuda if cuda is not None and cuda.is_initialized() else None
    except Exception:  # noqa: BLE001 - a torch that is half imported
        return None


def wait_for_device() -> bool:
    """Waits for PyTorch's current device if the program has begun to use one, as torch.profiler does at its end.
    Returns whether it waited. It doesn't wait while a CUDA graph is captured, which forbids it."""
    cuda = torch_cuda()
    if cuda is None:
        return False
    try:
        if cuda.is_current_stream_capturing():
            return False
        cuda.synchronize()
    except Exception:  # noqa: BLE001 - the program's own next call of CUDA has the error
        return False
    return True


def run_directory() -> Optional[str]:
    """Returns the directory of the run that records this process, or None without tprof."""
    return os.environ.get("TPROF_OUTPUT") if _abi.UNDER_TPROF else None


def environment() -> Dict[str, str]:
    """Returns the environment without tprof's own variables, so that the module's commands don't become part of
    the job."""
    kept = {}
    for name, value in os.environ.items():
        if name == "LD_PRELOAD":
            value = ":".join(entry for entry in value.replace(" ", ":").split(":") if not entry.endswith(_OURS))
            if not value:
                continue
        elif name == "TPROF_NEXT_INJECTION" or value.endswith(_OURS):
            continue
        elif name.startswith("TPROF_"):
            continue
        kept[name] = value
    return kept


def tprof(*words: str) -> str:
    """Runs ``tprof`` with these words, unrecorded, and returns its stdout. Raises TprofError with its stderr."""
    command = [_binary.find(), *words]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            check=False,
        )
    except OSError as error:
        raise _binary.TprofError("cannot run %s: %s" % (command[0], error)) from error
    if done.returncode != 0:
        text = done.stderr.decode("utf-8", "replace").strip()
        raise _binary.TprofError(text or "tprof %s: status %d" % (words[0], done.returncode))
    return done.stdout.decode("utf-8", "replace")


def document(*words: str) -> Dict[str, Any]:
    """Returns the JSON that a command of ``tprof`` prints. Raises TprofError."""
    made: Dict[str, Any] = json.loads(tprof(*words))
    return made


def request_export(request: Dict[str, Any]) -> str:
    """Writes a request file into the run, for which ``tprof run`` makes the export after the job. Returns the path of
    the request. Raises OSError."""
    directory = os.path.join(run_directory() or "", "requests")
    os.makedirs(directory, exist_ok=True)
    number = len(os.listdir(directory))
    text = json.dumps(request, indent=1) + "\n"
    while True:
        path = os.path.join(directory, "%d-%d.json" % (os.getpid(), number))
        try:
            with open(path + ".new", "x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            number += 1
            continue
        # Renamed when it is complete, because the job may end at any moment.
        os.rename(path + ".new", path)
        return path
