"""Draws a log-log picture as SVG: costs over sizes, in panels side by side."""

import math
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 470, 330, 62, 104, 42, 52
# Okabe and Ito (2008) chose these so that most colour-blind people can distinguish them.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d00", "#56b4e9", "#000000", "#a6611a")


def decades(values):
    return range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)


def tick(power, unit=""):
    if power < 0:
        return f"{10**power:g}{unit}"
    for step, letter in ((6, "M"), (3, "k")):
        if power >= step:
            return f"{10 ** (power - step)}{letter}{unit}"
    return f"{10**power}{unit}"


def panel(title, lines, offset, powers, colours):
    """Returns one panel; `powers` are the decades of the vertical axis."""
    sizes = [x for _, points in lines for x, _ in points]
    across = decades(sizes)
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(value):
        return offset + LEFT + wide * (math.log10(value) - across[0]) / (across[-1] - across[0])

    def y(value):
        return TOP + high * (powers[-1] - math.log10(value)) / (powers[-1] - powers[0])

    out = [f'<text x="{offset + LEFT}" y="22" class="title">CPU seconds by {escape(title)}</text>']
    for power in across:
        at = x(10**power)
        out.append(f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{TOP + high}" class="grid"/>')
        out.append(f'<text x="{at:.1f}" y="{TOP + high + 18}" text-anchor="middle">{tick(power)}</text>')
    for power in powers:
        at = y(10**power)
        out.append(f'<line x1="{x(10 ** across[0]):.1f}" y1="{at:.1f}" x2="{x(10 ** across[-1]):.1f}" y2="{at:.1f}" class="grid"/>')
        out.append(f'<text x="{offset + LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{tick(power, " s")}</text>')
    # A guide line: a cost that is proportional to the size.
    low = 10 ** powers[0]
    steps = min(across[-1] - across[0], powers[-1] - powers[0])
    from_x, to_x = 10 ** (across[-1] - steps), 10 ** across[-1]
    out.append(f'<line x1="{x(from_x):.1f}" y1="{y(low):.1f}" x2="{x(to_x):.1f}" y2="{y(low * 10**steps):.1f}" class="linear"/>')
    labels = []
    for name, points in lines:
        colour = colours[name]
        path = " ".join(f"{x(size):.1f},{y(cost):.1f}" for size, cost in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x(size):.1f}" cy="{y(cost):.1f}" r="3" fill="{colour}"/>' for size, cost in points]
        labels.append([y(points[-1][1]), name, colour])
    # Labels keep their order, and are at least one text line apart.
    labels.sort()
    for before, label in zip(labels, labels[1:]):
        label[0] = max(label[0], before[0] + 14)
    right = x(10 ** across[-1]) + 8
    out += [f'<text x="{right:.1f}" y="{at + 4:.1f}" fill="{colour}">{escape(name)}</text>' for at, name, colour in labels]
    out.append(f'<text x="{offset + LEFT}" y="{HEIGHT - 10}" class="small">dashed: in proportion to the {escape(title.split()[0])}</text>')
    return out


def write(path, panels):
    """Writes the picture. Each panel has a name for its sizes, and lines with a name and points (size, cost)."""
    costs = [cost for _, lines in panels for _, points in lines for _, cost in points]
    powers = decades([max(cost, 1e-3) for cost in costs])
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * len(panels)} {HEIGHT}" width="{WIDTH * len(panels)}" height="{HEIGHT}" role="img">',
        "<style>text{font:12px sans-serif}.title{font-weight:bold;font-size:13px}.small{font-size:11px;fill:#555}"
        ".grid{stroke:#ddd}.linear{stroke:#999;stroke-dasharray:5 4}</style>",
        f'<rect width="{WIDTH * len(panels)}" height="{HEIGHT}" fill="#fff"/>',
    ]
    # A name has the same colour in all pictures.
    names = list(dict.fromkeys(name for _, lines in panels for name, _ in lines))
    colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(names)}
    for at, (title, lines) in enumerate(panels):
        drawn = [(name, [(size, max(cost, 1e-3)) for size, cost in points]) for name, points in lines]
        out += panel(title, drawn, at * WIDTH, powers, colours)
    with open(path, "w") as file:
        file.write("\n".join([*out, "</svg>"]) + "\n")
