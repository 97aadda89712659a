"""``tprof.exec_under``: starts the script again under tprof."""

from __future__ import annotations

import os
import stat
import sys

from . import _binary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List


def _command() -> List[str]:
    """Returns the words that started this Python. Raises TprofError if the script can't be started again."""
    if sys.argv and (sys.argv[0] == "-" or _is_read_once(sys.argv[0])):
        raise _binary.TprofError("the script came through a pipe, and can't be read again")
    given = getattr(sys, "orig_argv", None)
    if given and sys.executable:
        return [sys.executable, *given[1:]]
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if not sys.executable or not sys.argv or sys.argv[0] in ("", "-c"):
        raise _binary.TprofError("this Python runs no script file or module, so it can't be started again")
    import subprocess

    flags: List[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    if spec is not None:
        name = spec.name[: -len(".__main__")] if spec.name.endswith(".__main__") else spec.name
        return [sys.executable, *flags, "-m", name, *sys.argv[1:]]
    return [sys.executable, *flags, *sys.argv]


def _is_read_once(script: str) -> bool:
    """Returns whether a script is a pipe or the standard input, which this Python has read to the end."""
    try:
        return not stat.S_ISREG(os.stat(script).st_mode) and not os.path.isdir(script)
    except OSError:
        return False


def exec_under(*options: str) -> None:
    """Starts this script again under ``tprof run``, in place of this process. If it already runs under tprof, or
    if ``TPROF_ENABLED=0`` is set, it returns at once. ``options`` are those of ``tprof run``, such as
    ``"--operators", "shapes"``. Everything that the script did before is done twice, so call this first.

    Raises TprofError if the program isn't found, in an interactive Python, and for a script from a pipe.
    """
    # The variable is set even if tprof could not load its library into the process, so the process doesn't restart
    # itself forever.
    if "TPROF_SESSION" in os.environ or os.environ.get("TPROF_ENABLED") == "0":
        return
    if hasattr(sys, "ps1") or "ipykernel" in sys.modules:
        raise _binary.TprofError("an interactive Python cannot be started again under tprof")
    program = _binary.find()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(program, [program, "run", *options, "--", *_command()])
