#!/usr/bin/env python3
"""Builds a few megabytes of JSON, parses them three times and counts."""

import collections
import json

rows = [
    {"id": i, "user": f"user-{i % 997}", "tags": ["a", "b", str(i % 13)], "body": "lorem " * (i % 40)}
    for i in range(30_000)
]
text = json.dumps(rows)
totals = collections.Counter()
for _ in range(3):
    for row in json.loads(text):
        totals[row["user"]] += len(row["body"])
print(len(text), totals.most_common(1))
