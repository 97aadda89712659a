// Draws the figures of a whole job over time, with their changes: the tables of the report
// `history`.

// The charts: their lines, each a column of `over_time`, and the figures of `changes` that are
// marked. Of a chart that is not `judged`, nobody can say whether a change is bad. Lines that are
// `summed` are of all ranks together. Charts that are `first` are on the run's overview, too.
const JOB_CHARTS = [
  { title: "Step time, the median", unit: "ns", lines: [["median_ns", "median"]], figures: ["step_time"], judged: true, first: true },
  { title: "Slowest step", unit: "ns", lines: [["longest_ns", ""]], figures: ["step_time"], spikes: true, judged: true, first: true },
  { title: "Devices: share of the steps", unit: "share", lines: [["busy_share", "busy"], ["compute_share", "compute"], ["exposed_share", "exposed communication"], ["copies_share", "only copies"]], figures: ["busy", "compute", "exposed_communication", "copies"], judged: true, first: true },
  { title: "Device memory", summed: true, unit: "bytes", lines: [["device_memory_bytes", ""]], figures: ["device_memory"], judged: true, first: true },
  { title: "Host memory", summed: true, unit: "bytes", lines: [["resident_bytes", "RSS"], ["heap_bytes", "heap"]], figures: ["resident_memory", "heap"], judged: true, first: true },
  { title: "The late rank: how long the others wait, share of the steps", unit: "share", lines: [["late_share", ""]], figures: ["late"], judged: true, first: true, named: "late_rank" },
  { title: "Processors in use", summed: true, unit: "none", lines: [["cpu_cores", ""]], figures: ["cpu"] },
  { title: "Power of the devices", summed: true, unit: "watts", lines: [["power_watts", ""]], figures: ["power"] },
  { title: "Hottest device", unit: "°C", lines: [["temperature_celsius", ""]], figures: ["temperature"], judged: true },
];
// Figures that are better when they rise, among figures that are better when they fall.
const BETTER_UP = new Set(["busy", "compute"]);
// Marks closer than this share of the time have one text.
const LEAST_APART = 0.16;

/** Returns a grid of charts, or null if the job has no two stretches of time. `closing` gets the charts. */
function jobCharts(document, closing, isWanted = () => true) {
  const rows = document.tables?.over_time || [], changes = document.tables?.changes || [];
  if (rows.length < 2) return null;
  const points = jobPoints(rows), made = JOB_CHARTS.filter((one) => isWanted(one) && one.lines.some(([key]) => rows.some((row) => typeof row[key] === "number")));
  if (!made.length) return null;
  return element("div", { class: "charts" }, ...made.map((one) => jobChart(one, points, changes, document.tables.history || [], closing)));
}

// Returns the middle of each stretch, with its row; without a row where no step or reading was in a
// stretch, so that no line crosses it.
function jobPoints(rows) {
  return rows.flatMap((row, at) => {
    const before = rows[at - 1], gap = before && row.time_ns > before.time_ns + 1.5 * before.length_ns;
    return [...(gap ? [{ x: before.time_ns + before.length_ns, row: {} }] : []), { x: row.time_ns + row.length_ns / 2, row }];
  });
}

function jobChart({ title, summed, unit, lines, figures, judged, spikes, named }, points, changes, ranks, closing) {
  const isOfSeveral = ranks.length > 1;
  const chart = new LineChart({ title: summed && isOfSeveral ? `${title}, all ranks` : title, unit, height: 150 });
  const known = lines.filter(([key]) => points.some(({ row }) => typeof row[key] === "number"));
  const series = known.map(([key, label]) => ({ label, values: points.map(({ row }) => row[key] ?? null) }));
  if (figures.includes("step_time") && !spikes) series.push(...usualLine(points, ranks));
  // A stretch alone, without known ones beside it, is no line.
  chart.dots = Boolean(named) || points.length < 4;
  chart.tipHead = (at) => {
    const { row } = points[at], from = row.time_ns;
    return [from === undefined ? duration(points[at].x) : `${duration(from)} to ${duration(from + row.length_ns)}`, row.steps ? `${formatCount(row.steps)} step${row.steps === 1 ? "" : "s"}` : "", named && row[named] || ""].filter(Boolean).join(" · ");
  };
  // A single slow step does not show in a median.
  const of = changes.filter((change) => figures.includes(change.figure) && (change.kind === "spike") === Boolean(spikes));
  const last = points.filter(({ row }) => row.length_ns).at(-1).row, from = points[0].row.time_ns, to = last.time_ns + last.length_ns;
  chart.set(points.map(({ x }) => x), series, { from, to, marks: changeMarks(of, { isJudged: judged, isNamed: figures.length > 1, isShare: summed && isOfSeveral }, to - from) });
  const said = of.slice(0, 5).map(changeText).join("; ");
  chart.canvas.setAttribute("aria-label", [chart.describe(), said && `Changes: ${said}.`].filter(Boolean).join(" "));
  closing.push(chart);
  const names = series.map(({ label }) => label);
  return element("div", {}, chart.element, names.length > 1 ? lineKey(names) : "");
}

// The median of the whole job; of several ranks, that of the one in the middle.
function usualLine(points, ranks) {
  const medians = ranks.map((rank) => rank.median_ns).filter((ns) => typeof ns === "number").sort((a, b) => a - b);
  return medians.length ? [{ label: "median of the whole job", values: points.map(() => medians[medians.length >> 1]) }] : [];
}

// `isNamed`: a mark names its figure. `isShare`: it says by which share a rank changed, because the
// lines add up the ranks.
function changeMarks(changes, { isJudged, isNamed, isShare }, length) {
  let last = -Infinity;
  return changes.map((change) => {
    const isApart = change.from_ns - last >= length * LEAST_APART;
    if (isApart) last = change.from_ns;
    const rises = change.value > change.before, isWorse = BETTER_UP.has(change.figure) ? !rises : rises;
    const text = isNamed ? `${rises ? "↑" : "↓"} ${change.figure_words}` : isShare && change.before ? signed(change.value / change.before - 1, "share") : change.is;
    return { x: change.from_ns, until: change.kind === "shift" ? change.until_ns ?? Infinity : null, text: isApart ? text : "", bad: isJudged ? isWorse : null };
  });
}

/** Describes a row of `changes` in words. */
function changeText(change) {
  const [was] = change.was.split(" ± "), from = change.kind === "spike" ? `${change.figure_words} once` : change.figure_words;
  const who = typeof change.rank === "string" && change.ranks === 1 ? change.rank : change.ranks > 1 ? `${formatCount(change.ranks)} ranks` : "";
  return `${from} ${was} → ${change.is}, ${[`at ${duration(change.from_ns)}`, typeof change.step === "number" ? `step ${change.step}` : "", typeof change.until_ns === "number" && change.kind === "shift" ? `until ${duration(change.until_ns)}` : "", who].filter(Boolean).join(", ")}`;
}
