// Draws operators below the roof of their device: operations a second over operations per byte, both
// on a logarithmic axis.

// Operators with less of the time would be tiny dots, and would extend the axes.
const LEAST_SHARE = 5e-4;
const MOST_POINTS = 400;
// What bounds an operator, by the last part of its CSS class.
const BOUNDS = { compute: "bound by operations", memory: "bound by memory", launch: "bound by the host", unknown: "bound not known" };
const PLOT = { wide: 900, tall: 420, left: 62, right: 24, above: 22, below: 38 };

function rooflineChart(rows, peaks, leftOut = 0) {
  const isPlaced = (row) => row.intensity > 0 && row.flops_per_s > 0 && typeof row.share === "number";
  const placed = rows.filter(isPlaced), long = placed.filter((row) => row.share >= LEAST_SHARE), points = long.slice(0, MOST_POINTS);
  if (!points.length) return null;
  const short = placed.length - long.length, others = rows.length - placed.length, less = long.length - points.length + leftOut;
  const undrawn = [[less, "with less than others"], [short, `with less than ${LEAST_SHARE * 100} % of the time`], [others, "without operations or known bytes"]].filter(([count]) => count);
  const title = `Operators below the roof; area: time${undrawn.length ? `. Not drawn: ${undrawn.map(([count, why]) => `${count} ${why}`).join(", ")}` : ""}`;
  const roofs = roofsOf(peaks), axes = rooflineAxes(points, roofs), most = Math.max(...points.map((row) => row.share));
  const key = element("div", { class: "key" }, ...Object.entries(BOUNDS).map(([name, text]) => element("span", {}, element("i", { class: `bound-${name}` }), text)));
  return element("figure", {}, element("figcaption", {}, title), key, svg("svg", { viewBox: `0 0 ${PLOT.wide} ${PLOT.tall}`, role: "img", "aria-label": title },
    ...rooflineGrid(axes), ...roofLines(axes, roofs), ...points.map((row) => rooflinePoint(row, axes, most))));
}

// Returns the limits of the device. With several devices, the slope could be of one device and the
// roof of another, so there are none.
function roofsOf(peaks) {
  const roofs = peaks.filter((row) => row.flops_per_s > 0).map((row) => ({ name: `${row.peak}, ${shown(row.flops_per_s, "flop/s")}`, rate: row.flops_per_s }));
  const isOne = new Set(peaks.map((row) => row.device)).size <= 1;
  return isOne ? { memory: peaks[0]?.bytes_per_s || null, roofs: roofs.sort((a, b) => b.rate - a.rate) } : { memory: null, roofs: [] };
}

function rooflineAxes(points, { memory, roofs }) {
  // The range between two powers of ten that contains all values.
  const powers = (values) => {
    const logs = values.filter((value) => value > 0 && Number.isFinite(value)).map(Math.log10), from = Math.floor(Math.min(...logs));
    return [from, Math.max(from + 1, Math.ceil(Math.max(...logs)))];
  };
  const xs = powers([...points.map((row) => row.intensity), ...roofs.map(({ rate }) => memory ? rate / memory * 4 : 0)]);
  const ys = powers([...points.map((row) => row.flops_per_s), ...roofs.map(({ rate }) => rate * 1.2)]);
  const along = (value, [from, to]) => (Math.log10(value) - from) / (to - from);
  return {
    xs, ys, x: (value) => PLOT.left + (PLOT.wide - PLOT.left - PLOT.right) * along(value, xs),
    y: (value) => PLOT.above + (PLOT.tall - PLOT.above - PLOT.below) * (1 - along(value, ys)),
  };
}

function rooflineGrid({ xs, ys, x, y }) {
  const bottom = PLOT.tall - PLOT.below, right = PLOT.wide - PLOT.right;
  // In a wide range, only every Nth power of ten has a line.
  const powers = ([from, to]) => Array.from({ length: to - from + 1 }, (_, at) => from + at).filter((_, at) => at % Math.floor((to - from) / 12 + 1) === 0);
  return [
    ...powers(xs).flatMap((power) => [svg("path", { class: "grid", d: `M${x(10 ** power).toFixed(1)} ${PLOT.above}V${bottom}` }),
      svg("text", { class: "axis", x: x(10 ** power).toFixed(1), y: bottom + 14, "text-anchor": "middle" }, power < -4 || power > 4 ? `1e${power}` : String(10 ** power))]),
    ...powers(ys).flatMap((power) => [svg("path", { class: "grid", d: `M${PLOT.left} ${y(10 ** power).toFixed(1)}H${right}` }),
      svg("text", { class: "axis", x: PLOT.left - 4, y: (y(10 ** power) + 4).toFixed(1), "text-anchor": "end" }, scaled(10 ** power, [["", 1], ["k", 1e3], ["M", 1e6], ["G", 1e9], ["T", 1e12], ["P", 1e15]]).replace(/\.0+(?= |$)/, ""))]),
    svg("text", { class: "axis", x: right, y: PLOT.tall - 4, "text-anchor": "end" }, "operations for each byte"), svg("text", { class: "axis", x: 4, y: 10 }, "operations a second"),
  ];
}

// Draws the limits of memory and of each data type. Without the memory's rate, the slope is left out.
function roofLines({ xs, ys, x, y }, { memory, roofs }) {
  const end = x(10 ** xs[1]).toFixed(1);
  let lastLabel = -Infinity;
  return roofs.flatMap(({ name, rate }) => {
    const high = y(rate), from = memory ? Math.max(10 ** xs[0], 10 ** ys[0] / memory) : 0;
    const slope = memory ? `M${x(from).toFixed(1)} ${y(memory * from).toFixed(1)}L${Math.max(x(rate / memory), x(from)).toFixed(1)} ${high.toFixed(1)}` : `M${PLOT.left} ${high.toFixed(1)}`;
    // The label is above its line. If the label of a near roof leaves no room there, it is below
    // that label.
    const label = high - 4 >= lastLabel + 15 ? high - 4 : Math.max(high + 12, lastLabel + 15);
    lastLabel = label;
    return [svg("path", { class: "roof", d: `${slope}H${end}` }), svg("text", { class: "of-roof", x: Number(end) - 4, y: label.toFixed(1), "text-anchor": "end" }, name)];
  });
}

function rooflinePoint(row, { x, y }, most) {
  const bound = Object.hasOwn(BOUNDS, row.bound) ? row.bound : "unknown";
  const lines = [row.what || row.operator, `${shown(row.time_ns || 0, "ns")} in ${formatCount(row.runs || 0)} run${row.runs === 1 ? "" : "s"}, ${percentText(row.share)} of the time`,
    `${shown(row.flops_per_s, "flop/s")}, ${shown(row.bytes_per_s || 0, "bytes/s")}, ${row.intensity.toFixed(1)} operations for each byte`,
    typeof row.of_roof === "number" ? `${percentText(row.of_roof)} of the roof, ${bound}` : ""].filter(Boolean);
  const point = svg("circle", { class: `point bound-${bound}`, cx: x(row.intensity).toFixed(1), cy: y(row.flops_per_s).toFixed(1), r: Math.max(2.5, 20 * Math.sqrt(row.share / most)).toFixed(1) }, svg("title", {}, straight(lines.join("\n"))));
  const id = parseHash(location.hash).parts[1];
  const href = typeof row.slowest_start_ns === "number" && typeof row.slowest_ns === "number" ? timelineHref(id, { start: row.slowest_start_ns, lasts: row.slowest_ns }) : null;
  return href ? svg("a", { href }, point) : point;
}
