"""Reads a log directory with TensorBoard's own readers and prints all runs as JSON:
python event_files.py DIRECTORY

It uses the multiplexer and the data provider that TensorBoard's own plugins use. They convert
data in older formats.
"""

import json
import math
import sys

from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.context import RequestContext


def main():
    everything = {"scalars": 0, "histograms": 0, "text": 0}
    runs = plugin_event_multiplexer.EventMultiplexer(tensor_size_guidance=everything)
    runs.AddRunsFromDirectory(sys.argv[1])
    runs.Reload()
    provider = data_provider.MultiplexerDataProvider(runs, sys.argv[1])
    context, sample = RequestContext(), 1_000_000
    read = {}
    for run in runs.Runs():
        read[run] = {"scalars": {}, "histograms": {}, "text": {}, "about": {}, "graph": graph(runs, run)}
    for kind, list_all, read_all in [
        ("scalars", provider.list_scalars, provider.read_scalars),
        ("histograms", provider.list_tensors, provider.read_tensors),
        ("text", provider.list_tensors, provider.read_tensors),
    ]:
        arguments = {"experiment_id": "", "plugin_name": kind}
        listed = list_all(context, **arguments)
        data = read_all(context, downsample=sample, **arguments)
        for run, series in listed.items():
            for tag, about in series.items():
                read[run]["about"][tag] = about.description
                points = data[run][tag]
                read[run][kind][tag] = [[at.step, at.wall_time, value(kind, at)] for at in points]
    print(json.dumps(read))


def graph(runs, run):
    """Returns the nodes of a run's graph; None if the run has no graph."""
    try:
        nodes = runs.Graph(run).node
    except ValueError:
        return None
    attributes = lambda node: {key: value.s.decode() for key, value in node.attr.items()}  # noqa: E731
    return [[node.name, node.op, list(node.input), attributes(node)] for node in nodes]


def value(kind, at):
    if kind == "scalars":
        return at.value if math.isfinite(at.value) else None
    if kind == "text":
        return [text.decode() for text in at.numpy.flatten()]
    return at.numpy.tolist()


if __name__ == "__main__":
    main()
