#!/usr/bin/env python3
"""Trains a click model on JSON events, and grows while it does so.

Each step parses a batch of events, which come 25 times a second as from a queue, skips those that it has seen before,
and does one pass of logistic regression over the rest. The program needs only the standard library, and not tprof.
The growth is a common one: to recognise an event that is delivered twice, the program stores every event as a whole.
With `--keep id` it stores only the ids, and stays small.
"""

import argparse
import json
import math
import random
import time

WORDS = "red blue fast slow cheap large small new used soft warm cold".split()


def batches(steps, size, every, rng):
    """Yields batches of JSON lines, one in ten of which is delivered a second time."""
    lines, pages = [], [json.dumps(" ".join(rng.choices(WORDS, k=220))) for _ in range(100)]
    form = '{"id": "%d-%d", "words": ["%s"], "page": %s, "clicked": %s}'
    for step in range(steps):
        batch, drawn = [], rng.choices(WORDS, k=6 * size)
        for number in range(size):
            if lines and rng.random() < 0.1:
                batch.append(rng.choice(lines))
                continue
            words = drawn[6 * number : 6 * number + 6]
            clicked = ("cheap" in words) != (rng.random() < 0.1)
            # This is the queue, not the program: it takes as little time as possible, so it writes
            # JSON as text.
            text = '", "'.join(words)
            truth = "true" if clicked else "false"
            batch.append(form % (step, number, text, rng.choice(pages), truth))
        lines = batch
        time.sleep(every)
        yield batch


def train(weights, event, rate):
    """Takes one step of logistic regression on an event and returns the loss."""
    score = sum(weights.get(word, 0.0) for word in event["words"])
    guess = 1.0 / (1.0 + math.exp(-score))
    error = float(event["clicked"]) - guess
    for word in event["words"]:
        weights[word] = weights.get(word, 0.0) + rate * error
    return -math.log(max(1e-9, 1.0 - abs(error)))


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--steps", type=int, default=150)
    arguments.add_argument("--batch", type=int, default=400)
    arguments.add_argument("--every", type=float, default=0.04, help="seconds between batches")
    arguments.add_argument("--keep", choices=["event", "id"], default="event")
    options = arguments.parse_args()

    began = time.perf_counter()
    rng = random.Random(1)
    weights, seen, twice = {}, {}, 0
    for step, batch in enumerate(batches(options.steps, options.batch, options.every, rng), start=1):
        loss, trained = 0.0, 0
        for line in batch:
            event = json.loads(line)
            if event["id"] in seen:
                twice += 1
                continue
            seen[event["id"]] = event if options.keep == "event" else True
            loss += train(weights, event, rate=0.05)
            trained += 1
        if step % 50 == 0:
            print(f"step {step}: loss {loss / trained:.3f}, {len(seen)} events seen")
    seconds = time.perf_counter() - began
    print(f"{twice} events came twice; {seconds:.1f} s")


if __name__ == "__main__":
    main()
