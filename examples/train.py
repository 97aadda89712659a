"""Trains a small network on numbers that it makes up, with NumPy.

A profile shows whether the time goes into the network or into the preparation of its data.
"""

import sys
import zlib

import numpy as np

BATCH, FEATURES, HIDDEN = 512, 256, 64


def stored(rng, batches):
    """Returns compressed batches, as a data set on disk has them."""
    images = rng.integers(0, 255, (batches, BATCH * FEATURES), dtype=np.uint8)
    return [zlib.compress((image // 32).tobytes()) for image in images]


def load_batch(data):
    flat = np.frombuffer(zlib.decompress(data), dtype=np.uint8)
    return flat.reshape(BATCH, FEATURES).astype(np.float32) / 8


def augment(batch):
    """Shifts each row by an amount of its own, one row at a time."""
    rows = []
    for number, row in enumerate(batch):
        shift = (number * 7) % FEATURES
        rows.append([*row[shift:].tolist(), *row[:shift].tolist()])
    return np.array(rows, dtype=np.float32)


def train_step(weights, x, y, rate=1e-3):
    w1, w2 = weights
    hidden = np.maximum(x @ w1, 0)
    error = hidden @ w2 - y
    slope = (error @ w2.T) * (hidden > 0)
    w2 -= rate / BATCH * hidden.T @ error
    w1 -= rate / BATCH * x.T @ slope
    return float((error**2).mean())


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    rng = np.random.default_rng(0)
    data = stored(rng, 10)
    weights = [rng.standard_normal((FEATURES, HIDDEN)).astype(np.float32) * 0.05,
               rng.standard_normal((HIDDEN, 1)).astype(np.float32) * 0.05]
    for step in range(steps):
        x = augment(load_batch(data[step % len(data)]))
        y = x.mean(axis=1, keepdims=True)
        loss = train_step(weights, x, y)
    print(f"loss {loss:.4f}")


main()
