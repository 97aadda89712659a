"""Allocates blocks in the two ways in which data loaders run their workers: forked, and
started anew.

Proves: the Python frames of children's allocations are recorded.
"""

import multiprocessing
import sys

# The blocks that the children keep.
kept = []


def victim_item(index):
    kept.append(bytearray(500_017))  # line: item
    return index


def work(method):
    context = multiprocessing.get_context(method)
    workers = [context.Process(target=victim_item, args=(i,)) for i in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0


if __name__ == "__main__":
    for method in sys.argv[1:]:
        work(method)
