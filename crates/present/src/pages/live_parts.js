// Collects the events of a running job from its snapshots, and shows its figures in words.

const LIVE_POINTS = 300;
const LINE_RANKS = 32;

class LiveState {
  constructor() {
    this.snapshot = null;
    this.times = [];
    this.series = new Map();
    this.events = [];
  }
  // The first snapshot contains the last minutes; each later one adds a point.
  add(snapshot, first) {
    this.snapshot = snapshot;
    if (first || !this.times.length) this.begin(snapshot);
    else this.append(snapshot);
    this.events = [...(first ? [] : this.events), ...(snapshot.events || [])].slice(-200);
  }
  begin(snapshot) {
    this.times = (snapshot.history?.times_ns || []).slice(-LIVE_POINTS);
    this.series = new Map();
    const labels = this.labels();
    for (const [key, lines] of Object.entries(snapshot.history?.series || {})) this.series.set(key, new Map(lines.map((values, at) => [labels[at] ?? `rank ${at}`, values.slice(-LIVE_POINTS)])));
    if (!this.times.length) this.append(snapshot);
  }
  append(snapshot) {
    if (this.times.length && snapshot.time_ns <= this.times[this.times.length - 1]) return;
    this.times.push(snapshot.time_ns);
    const labels = this.labels(), points = this.times.length;
    for (const metric of snapshot.metrics) {
      if (!this.series.has(metric.key)) this.series.set(metric.key, new Map());
      const lines = this.series.get(metric.key);
      labels.forEach((label, at) => { if (!lines.has(label)) lines.set(label, []); const line = lines.get(label); while (line.length < points - 1) line.push(null); line.push(metric.values[at] ?? null); });
    }
    for (const lines of this.series.values()) for (const line of lines.values()) { while (line.length < points) line.push(null); if (line.length > LIVE_POINTS) line.shift(); }
    if (points > LIVE_POINTS) this.times.shift();
  }
  labels() { return this.snapshot.ranks.slice(0, LINE_RANKS).map((rank) => rank.label); }
  metric(key) { return this.snapshot.metrics.find((metric) => metric.key === key); }
}

function metricTitle(key) {
  if (key.startsWith("gauge:")) return key.slice(6);
  return { steps: "Steps", steps_per_second: "Steps a second", step_ns: "Last step", since_step_ns: "Since the last step", rss_bytes: "RSS", heap_bytes: "Heap", cpu_cores: "CPU, cores", gpu_utilization: "GPU utilization", gpu_memory_used_bytes: "GPU memory", gpu_power_watts: "GPU power", lost: "Lost", wait_share: "Waiting" }[key] || titled(key);
}
function metricUnit(metric) {
  return metric.unit === "none" || !metric.unit ? "none" : metric.unit;
}
// Combines a metric over all ranks: { value, at: rank with the extreme value }, or null.
function over(metric, how) {
  if (!metric) return null;
  const there = metric.values.map((value, at) => [value, at]).filter(([value]) => value !== null && value !== undefined);
  if (!there.length) return null;
  if (how === "sum") return { value: there.reduce((sum, [value]) => sum + value, 0), of: there.length };
  if (how === "mean") return { value: there.reduce((sum, [value]) => sum + value, 0) / there.length, of: there.length };
  const [value, at] = there.reduce((best, one) => (how === "least" ? one[0] < best[0] : one[0] > best[0]) ? one : best);
  return { value, at, of: there.length };
}

// Makes the large figures. Even an unknown figure takes its place, so that nothing moves later.
function liveFigures(state) {
  const { snapshot } = state, labels = snapshot.ranks.map((rank) => rank.label), many = labels.length > 1;
  const known = (found, unit, under) => ({ text: shown(found.value, unit), title: exact(found.value, unit), under });
  const figure = (name, key, how, under) => {
    const metric = state.metric(key), found = over(metric, how);
    return { name, key, ...(found ? known(found, metricUnit(metric), under ? under(metric, found) : "") : { text: "unknown", under: metric?.why || "not measured" }) };
  };
  const part = (found, text) => found.of < labels.length ? `${text}, ${found.of} of ${labels.length} ranks` : text;
  const slowest = (metric) => { const found = over(metric, "least"); return many ? `slowest: ${labels[found.at]}, ${shown(found.value, metricUnit(metric))}` : "last 10 s"; };
  const largest = (metric, found) => { const most = over(metric, "most"); return part(found, many ? `most: ${labels[most.at]}, ${shown(most.value, metricUnit(metric))}` : ""); };
  const figures = [
    figure(many ? "Steps a second, all ranks" : "Steps a second", "steps_per_second", "sum", slowest),
    figure(many ? "Longest last step" : "Last step", "step_ns", "most", (metric, found) => many ? labels[found.at] : ""),
  ];
  for (const metric of snapshot.metrics.filter((one) => one.key.startsWith("gauge:")).slice(0, 4)) {
    figures.push(figure(metricTitle(metric.key), metric.key, "mean", (one, found) => many ? `mean of ${found.of}; ${shown(over(one, "least").value, metricUnit(one))} to ${shown(over(one, "most").value, metricUnit(one))}` : "gauge of the program"));
  }
  figures.push(figure("RSS", "rss_bytes", "sum", largest), figure("Heap", "heap_bytes", "sum", largest),
    figure("GPU utilization", "gpu_utilization", "mean", (metric, found) => many ? `least: ${labels[over(metric, "least").at]}, ${shown(over(metric, "least").value, "share")}` : part(found, "")),
    figure("GPU memory", "gpu_memory_used_bytes", "sum", largest), figure("GPU power", "gpu_power_watts", "sum", largest));
  const { lost, recorded } = snapshot.totals;
  figures.push({ name: "Lost", key: "lost", text: lost === null ? "unknown" : lost ? formatCount(lost) : "none", title: lost === null ? "" : exact(lost, "count"), under: `of ${formatCount(recorded || 0)} recorded`, bad: lost > 0 });
  return figures;
}
function paintFigureTiles(place, figures) {
  const keys = figures.map((figure) => figure.key).join(" ");
  if (place.dataset.keys !== keys) {
    place.dataset.keys = keys;
    place.replaceChildren(...figures.map(() => element("div", {}, element("dt", {}), element("dd", {}), element("dd", { class: "dim why" }))));
  }
  figures.forEach((figure, at) => {
    const [name, value, under] = place.children[at].children;
    const put = (node, text) => { if (node.textContent !== text) node.textContent = text; };
    put(name, figure.name); put(value, figure.text); put(under, figure.under || "");
    under.title = figure.under || "";
    value.title = figure.title || "";
    place.children[at].classList.toggle("bad", Boolean(figure.bad));
    value.classList.toggle("unknown-figure", figure.text === "unknown");
  });
}

// Describes stalled ranks.
function stallText(stall) {
  const usual = stall.usual_ns ? ` (usual ${shown(stall.usual_ns, "ns")})` : "";
  const after = stall.step !== null && stall.step !== undefined ? ` after step ${stall.step}` : "";
  return `has made no step for ${shown(stall.for_ns, "ns")}${usual}${after}${stall.what ? `: ${stall.what}` : ""}`;
}
// Asks where the run stands still, once each time that other ranks do.
async function askWhere(place, id) {
  place.verdict = "";
  try {
    const { verdict } = await api(`runs/${id}/where`);
    place.verdict = `${verdict.kind.replace("_", " ")}: ${verdict.text}`;
  } catch { /* The collector may be busy or on another host: the stalls themselves are shown. */ }
}
function paintStalls(place, state, id) {
  const stalls = state.snapshot.stalls || [], steps = state.metric("steps_per_second") || state.metric("steps");
  // The text for screen readers changes only when a rank stalls or resumes, not every second.
  const ranks = stalls.map((stall) => stall.label).join(", ");
  if ((place.dataset.ranks || "") !== ranks) { place.dataset.ranks = ranks; $("spoken").textContent = ranks ? `${ranks} made no step for long` : "no rank stands still"; if (ranks) askWhere(place, id); }
  place.classList.toggle("stalled", stalls.length > 0);
  if (!stalls.length) {
    const some = over(state.metric("steps"), "sum") || over(state.metric("steps_per_second"), "sum");
    const text = some ? "No rank stands still." : `Stalls cannot be recognised: ${steps?.why || "no steps are recorded"}.`;
    if (place.textContent !== text) place.replaceChildren(element("p", { class: some ? "calm" : "dim" }, text));
    return;
  }
  const worst = stalls.slice().sort((a, b) => b.for_ns - a.for_ns);
  place.replaceChildren(...worst.slice(0, 3).map((stall) => element("p", {}, element("b", {}, stall.label), ` ${stallText(stall)}`)), worst.length > 3 ? element("p", {}, `and ${worst.length - 3} more ranks`) : "", place.verdict ? element("p", {}, place.verdict) : "");
}

// Describes ranks that had no device memory for a request, as `tprof top` does.
function failedText(failed) {
  const known = (value) => value !== null && value !== undefined;
  const place = known(failed.device) ? `of GPU ${failed.device}` : "of the host", asked = `${shown(failed.asked_bytes, "bytes")} ${place}`;
  const what = failed.count === 1 ? `a request for ${asked} failed` : `${shown(failed.count, "count")} requests for device memory failed, the last for ${asked}`;
  const figures = [["allocated", failed.allocated_bytes], ["reserved", failed.reserved_bytes], ["free on the device", failed.free_bytes]].filter(([, value]) => known(value)).map(([name, value]) => `${shown(value, "bytes")} ${name}`);
  return [`${what}${failed.line ? ` at ${failed.line}` : ""}`, ...(figures.length ? [figures.join(", ")] : [])].join("; ");
}
function paintFailedRequests(place, snapshot) {
  const failed = snapshot.ranks.filter((rank) => rank.out_of_memory).sort((a, b) => (b.out_of_memory.time_ns || 0) - (a.out_of_memory.time_ns || 0));
  const key = failed.map((rank) => `${rank.label} ${failedText(rank.out_of_memory)}`).join("\n");
  if ((place.dataset.key || "") === key) return;
  place.dataset.key = key; place.hidden = !failed.length;
  if (failed.length) $("spoken").textContent = `${failed.map((rank) => rank.label).join(", ")}: out of device memory`;
  place.replaceChildren(...failed.slice(0, 3).map((rank) => element("p", {}, element("b", {}, rank.label), ` ${failedText(rank.out_of_memory)}`)), failed.length > 3 ? element("p", {}, `and ${failed.length - 3} more ranks`) : "");
}

// Events and marks, the newest first.
function paintEvents(place, state) {
  const events = state.events.slice().reverse();
  const key = `${events.length} ${events[0]?.time_ns} ${events[0]?.text}`;
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  place.replaceChildren(...(events.length ? events.map((event) => element("li", { class: `event ${/^[a-z_]+$/.test(event.kind) ? event.kind : ""}` },
    element("time", { title: state.snapshot.start_unix_ns ? absolute(state.snapshot.start_unix_ns + event.time_ns) : null }, duration(event.time_ns)),
    element("span", { class: "who" }, event.label || ""), element("span", { class: "kind" }, event.kind.replaceAll("_", " ")), element("span", { title: event.text }, event.text))) : [element("li", { class: "none" }, "Nothing happened yet.")]));
}
