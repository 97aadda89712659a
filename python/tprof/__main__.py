"""Runs the program ``tprof`` with the arguments of ``python -m tprof``."""

import os
import sys

from ._binary import TprofError, find

try:
    program = find()
    os.execv(program, [program] + sys.argv[1:])
except (OSError, TprofError) as error:
    sys.exit("error: %s" % error)
