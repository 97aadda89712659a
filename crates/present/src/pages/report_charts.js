// Draws the plots of a document, if its kind has some.

const MOST_BARS = 64;
const MOST_STEP_COLUMNS = 120;
// Parts of wall time in the order of the bars. The server defines `HOST_NAMES`
// (`tprof_facts::host_parts`).
const HOST_PARTS = Object.keys(HOST_NAMES);

// Parts of a device's time, each with the CSS class of its colour: work first, then what the device
// waited for.
const GPU_PARTS = { compute: ["compute", "part0"], communication: ["communication", "of-collective"], copies: ["copies", "of-file_io"], launch: ["idle: launches", "of-no_core"], sync: ["idle: waits for the device", "of-device"], allocation: ["idle: device memory", "of-allocator"],
  pageable_copy: ["idle: pageable copies", "of-socket"], python: ["idle: other code", "of-python"], data: ["idle: data", "of-data"], gc: ["idle: garbage collection", "of-gc"], lock: ["idle: a lock", "of-lock"], gil: ["idle: the GIL", "of-gil"], compile: ["idle: compilation", "of-native"],
  checkpoint: ["idle: checkpoint", "of-page_fault"], collective: ["idle: other ranks", "of-collective"], stream: ["idle: held on the device", "of-other"], start: ["idle: before the first work", "of-unknown"], end: ["idle: after the last work", "of-unknown"], unknown: ["idle: unknown", "of-unknown"] };

function reportCharts(document, tables) {
  const of = (key) => document.tables?.[key] || [];
  const make = {
    breakdown: () => [shares("GPU time by rank", "breakdown", ["compute_share", "overlapped_share", "exposed_share", "copies_share", "idle_share"]),
      shares("Host and GPU", "host_and_gpu", ["both_share", "host_only_share", "gpu_only_share", "neither_share"])],
    "gpu-time": () => [gpuTimeBars(of("parts"))],
    idle: () => [shares("Why streams were idle", "idle", ["host_wait_share", "kernel_wait_share", "other_share", "unknown_share"])],
    host: () => hostCharts(of("parts"), of("steps"), of("start_up")),
    steps: () => [stepColumns(of("steps"), document.shown?.steps?.left_out)],
    stragglers: () => [valueColumns("How late ranks come to collectives, on average", of("late_arrivals"), "mean_late_ns")],
    "critical-path": () => [shares("What bounds the run", "critical_path", ["host", "compute", "communication", "copy", "launch", "kernel_gap", "unknown"])],
    kernels: () => [shareBars("Time by kind", [Object.fromEntries(of("kinds").map((row) => [row.kind, row.share]))], of("kinds").map((row) => row.kind))],
    threads: () => [threadBars(of("threads"))],
    history: () => [jobCharts(document, tables)],
    roofline: () => [rooflineChart(of("roofline"), of("peaks"), document.shown?.roofline?.left_out)],
  }[document.kind];
  const shares = (title, key, columns) => shareBars(title, of(key), columns, headingsOf(document.shown?.[key]));
  const made = make ? make().filter(Boolean) : [];
  for (const table of tablesOf(document)) if (isCurve(table)) made.push(curveChart(table, document.kind, tables));
  return made;
}
// Returns the headings of columns by key, of those that have one.
function headingsOf(how) {
  return new Map((how?.columns || []).filter((column) => column.heading).map((column) => [column.key, column.heading]));
}

// Whether a table is values over time, and nothing else.
function isCurve({ rows, how }) {
  if (how) return how.view === "curve" && rows.length > 1;
  return rows.length > 1 && Object.keys(rows[0])[0] === "time_ns" && Object.entries(rows[0]).every(([name, value]) => name.endsWith("_missing") || value === null || typeof value === "number") && !("rank" in rows[0]);
}
function curveChart({ key, rows, how }, kind, tables) {
  const all = columnsOf(rows, kind, key, how), [time] = all;
  const lines = all.slice(1).filter((column) => !column.isExtra && rows.some((row) => typeof row[column.key] === "number"));
  const chart = new LineChart({ title: how?.title || (key === "curve" ? `${titled(kind)} over time` : titled(key)), unit: lines[0]?.unit, stepped: true, height: 170 });
  chart.set(rows.map((row) => row[time.key]), lines.map((column) => ({ label: column.heading, values: rows.map((row) => row[column.key]) })));
  tables.push(chart);
  return element("div", {}, lines.length > 1 ? lineKey(lines.map((column) => column.heading)) : "", chart.element);
}

function barLabel(row) {
  return [typeof row.rank === "number" ? `rank ${row.rank}` : row.rank, row.device !== undefined && row.device !== null ? `GPU ${row.device}` : null, row.stream !== undefined && row.stream !== null ? `stream ${row.stream}` : null].filter((text) => text !== undefined && text !== null).join(", ");
}
function cutTitle(title, rows) {
  return rows.length > MOST_BARS ? `${title}, the first ${MOST_BARS} of ${rows.length}` : title;
}
function shareBars(title, rows, keys, names = new Map()) {
  const used = keys.filter((key) => rows.some((row) => row[key] > 0));
  if (!used.length) return null;
  const parts = used.map((key) => ({ name: names.get(key) || heading(key.replace(/_share$/, "")), class: /idle|neither|unknown/.test(key) ? "part4" : `part${[0, 1, 2, 3, 5, 6, 7][keys.indexOf(key) % 7]}` }));
  return stacksChart(cutTitle(title, rows), parts, rows.slice(0, MOST_BARS).map((row) => ({ label: barLabel(row) || "all", shares: used.map((key) => row[key] || 0) })));
}

function gpuTimeBars(parts) {
  const bars = new Map();
  for (const row of parts) {
    const label = barLabel(row) || "all", key = row.cause || row.part;
    const shares = bars.get(label) || bars.set(label, {}).get(label);
    shares[key] = (shares[key] || 0) + row.share;
  }
  const rows = [...bars].map(([label, shares]) => ({ label, shares })), used = Object.keys(GPU_PARTS).filter((key) => rows.some((row) => row.shares[key] > 0));
  if (!used.length) return null;
  return stacksChart(cutTitle("GPU time: work, and what the device waited for", rows), used.map((key) => ({ name: GPU_PARTS[key][0], class: GPU_PARTS[key][1] })), rows.slice(0, MOST_BARS).map((row) => ({ label: row.label, shares: used.map((key) => row.shares[key] || 0) })));
}

function hostCharts(parts, steps, startUp) {
  const bars = (title, rows) => {
    const used = HOST_PARTS.filter((part) => rows.some((row) => row.shares[part] > 0));
    if (!used.length) return null;
    return stacksChart(cutTitle(title, rows), used.map((part) => ({ name: HOST_NAMES[part], class: `of-${part}` })), rows.slice(0, MOST_BARS).map((row) => ({ label: row.label, shares: used.map((part) => row.shares[part] || 0) })));
  };
  const ranks = new Map();
  for (const row of parts) {
    if (!ranks.has(row.rank)) ranks.set(row.rank, { label: `rank ${row.rank}`, shares: {} });
    ranks.get(row.rank).shares[row.part] = (ranks.get(row.rank).shares[row.part] || 0) + row.share;
  }
  const one = ranks.size === 1;
  const longest = steps.filter((row) => row.wall_ns > 0).sort((a, b) => b.wall_ns - a.wall_ns).slice(0, 24);
  const bar = (label, row) => ({ label: `${label}, ${shown(row.wall_ns, "ns")}`, shares: Object.fromEntries(HOST_PARTS.map((part) => [part, (row[`${part}_ns`] || 0) / row.wall_ns])) });
  const ofStep = longest.map((row) => bar(one ? `step ${row.step}` : `rank ${row.rank}, step ${row.step}`, row));
  return [bars("Wall time of the driving thread by part", [...ranks.values()]), bars("The longest steps", ofStep), bars("Start-up", startUp.filter((row) => row.wall_ns > 0).map((row) => bar(`rank ${row.rank}`, row)))];
}

function stepColumns(rows, leftOut) {
  if (!rows.length) return null;
  const first = rows[0].rank, all = rows.filter((row) => row.rank === first && row.duration_ns !== null), some = all.slice(0, MOST_STEP_COLUMNS);
  return columnsChart(`Step times of ${barLabel({ rank: first })}${all.length > some.length ? `, the first ${some.length} of ${all.length}` : leftOut && all.length === rows.length ? `, the first ${some.length}` : ""}; outliers are highlighted`,
    some.map((row) => ({ label: `step ${row.step}`, short: String(row.step), value: row.duration_ns, text: `${shown(row.duration_ns, "ns")}${row.remark ? `, ${row.remark}` : ""}`, out: Boolean(row.remark && row.remark.length > 1) })));
}
function valueColumns(title, rows, key) {
  const some = rows.filter((row) => row[key] !== null && row[key] !== undefined).slice(0, MOST_STEP_COLUMNS);
  return some.length > 1 ? columnsChart(title, some.map((row) => ({ label: barLabel(row), value: row[key], text: shown(row[key], unitOf(key)) }))) : null;
}

function threadBars(rows) {
  const some = rows.filter((row) => row.running_ns + row.ready_ns + row.waited_ns > 0).slice(0, 12);
  if (!some.length) return null;
  const most = Math.max(...some.map((row) => row.running_ns + row.ready_ns + row.waited_ns));
  const parts = [{ name: "running", class: "part1" }, { name: "ready, on no core", class: "part5" }, { name: "waiting", class: "part4" }];
  return stacksChart(`Threads with the most time on a core; ${shown(most, "ns")} is the whole width`, parts, some.map((row) => ({ label: `${row.thread} [${row.tid}]`.slice(0, 40), shares: [row.running_ns / most, row.ready_ns / most, row.waited_ns / most] })));
}
