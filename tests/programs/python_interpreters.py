"""Runs busy functions, each in a subinterpreter of its own: two on the main thread, one after
another, and one on each of two other threads. `victim_outer` runs in the main interpreter.
Prints nothing."""

import threading

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

WORK = """
import time

def {name}(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

{name}({seconds})
"""


def run(name, seconds):
    interpreter = interpreters.create()
    interpreters.run_string(interpreter, WORK.format(name=name, seconds=seconds))
    interpreters.destroy(interpreter)


def victim_main(seconds):
    exec(WORK.format(name="victim_outer", seconds=seconds), {})


def main():
    run("victim_first", 0.4)
    run("victim_second", 0.2)
    victim_main(0.2)
    threads = [
        threading.Thread(target=run, args=("victim_third", 0.4), name="third"),
        threading.Thread(target=run, args=("victim_fourth", 0.2), name="fourth"),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


main()
