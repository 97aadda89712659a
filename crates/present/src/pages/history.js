// Shows one metric over the runs of a command, and marks the runs at which it changed.

VIEWS.set("history", (main, route) => runScene(main, route, "runs", "History", historyView));

const HISTORY_TITLES = { step_ns: "Median step", wall_ns: "Lasted", peak_bytes: "Peak heap", peak_rss_bytes: "Peak RSS", peak_device_bytes: "Peak GPU memory", gpu_busy: "GPU busy", steps: "Steps", lost: "Lost", findings: "Findings" };
function historyTitle(key) {
  return HISTORY_TITLES[key] || titled(key);
}

function historyView(content, run) {
  let answer = null, key = parseHash(location.hash).query.metric || "", table = null, chart = null, closed = false;
  const select = element("select", { onchange: () => { key = select.value; setQuery({ metric: key }); paint(); } });
  const pending = element("span", { class: "dim", role: "status" }), place = element("div", {}, waiting("The runs are being read"));
  content.replaceChildren(element("div", { class: "head" }, element("h2", {}, "History"), element("span", { class: "dim" }, "runs of the same command, oldest first"), pending, element("span", { class: "space" }), element("div", { class: "controls" }, element("label", {}, "Metric", select))), place);

  async function load() {
    answer = await api(`history?run=${run.id}`);
    if (closed) return false;
    const known = answer.metrics.filter((metric) => metric.points.some((point) => point.value !== null));
    if (!answer.metrics.some((metric) => metric.key === key)) key = known[0]?.key || answer.metrics[0]?.key || "";
    select.replaceChildren(...answer.metrics.map((metric) => element("option", { value: metric.key, selected: metric.key === key }, `${historyTitle(metric.key)}${known.includes(metric) ? "" : " (unknown)"}`)));
    pending.textContent = answer.pending ? `${answer.pending} run${answer.pending === 1 ? " is" : "s are"} still being computed` : "";
    paint();
    return answer.pending > 0;
  }
  function paint() {
    const metric = answer?.metrics.find((one) => one.key === key);
    if (!metric) { place.replaceChildren(element("p", { class: "none" }, "None: no metric of these runs is known.")); return; }
    const runs = new Map(answer.runs.map((one) => [one.id, one])), changes = new Map(metric.changes.map((change) => [change.at, change]));
    table?.close(); chart?.close();
    chart = historyChart(metric, runs);
    table = historyTable(metric, runs, changes, run.id);
    const words = metric.changes.map((change) => element("li", {}, element("span", { class: change.better ? "good" : "bad" }, `${signed(change.change, "share")}`), ` at `, element("a", { href: `#/run/${change.at}` }, runName(runs.get(change.at))), `: ${shown(change.from, metric.unit)} → ${shown(change.to, metric.unit)} `,
      previousOf(metric, change.at) ? element("a", { href: `#/compare/${previousOf(metric, change.at)}/${change.at}` }, "compare with the run before") : null));
    place.replaceChildren(chart.element, words.length ? element("ul", { class: "changes" }, ...words) : element("p", { class: "dim" }, metric.points.length < 5 ? `${metric.points.length} run${metric.points.length === 1 ? "" : "s"}: too few to judge a change.` : "No change beyond noise."), table.element, table.more);
  }
  const stop = SITE ? (load().catch(wrong), () => {}) : poll(POLL_MS, () => load().catch((error) => { wrong(error); throw error; }));
  function wrong(error) { if (!answer && !closed) place.replaceChildren(errorBox(error, () => load().catch(wrong))); }
  return { close: () => { closed = true; stop(); table?.close(); chart?.close(); }, get table() { return table; }, search: (text) => table?.filter(matcher(text)) };
}

function runName(run) {
  if (!run) return "a run";
  return run.commit ? `commit ${run.commit.slice(0, 8)}` : run.start_unix_ns ? absolute(run.start_unix_ns) : run.name || `run ${run.id}`;
}
function previousOf(metric, id) {
  const at = metric.points.findIndex((point) => point.id === id);
  return at > 0 ? metric.points[at - 1].id : null;
}
function historyChart(metric, runs) {
  const chart = new LineChart({ title: `${historyTitle(metric.key)}, ${metric.better === "less" ? "less is better" : metric.better === "more" ? "more is better" : "run by run"}`, unit: metric.unit, height: 260, xText: (at) => { const run = runs.get(metric.points[Math.round(at)]?.id); return run?.start_unix_ns ? absolute(run.start_unix_ns).slice(0, 16) : ""; } });
  chart.dots = true;
  chart.tipHead = (at) => { const run = runs.get(metric.points[at].id); return [runName(run), run?.commit && run.start_unix_ns ? absolute(run.start_unix_ns) : "", run?.note || ""].filter(Boolean).join(" · "); };
  chart.open = (at) => { location.hash = `#/run/${metric.points[at].id}`; };
  const place = new Map(metric.points.map((point, at) => [point.id, at]));
  chart.set(metric.points.map((_, at) => at), [{ label: historyTitle(metric.key), values: metric.points.map((point) => point.value) }], { marks: metric.changes.map((change) => ({ x: place.get(change.at), text: signed(change.change, "share"), bad: !change.better })) });
  return chart;
}
function historyTable(metric, runs, changes, here) {
  const rows = metric.points.map((point, at) => ({ ...point, run: runs.get(point.id) || { id: point.id }, before: at ? metric.points[at - 1].value : null })).reverse();
  const table = new Table({ label: "Runs", rowKey: (row) => row.id, limit: 100, text: (row) => [row.run.commit, row.run.note, ...(row.run.tags || []), row.run.name].filter(Boolean).join(" "), open: (row) => { location.hash = `#/run/${row.id}`; }, rowClass: (row) => row.id === here ? "here" : "",
    columns: [{ key: "when", heading: "Began", words: true, value: (row) => row.run.start_unix_ns, cell: (row) => row.run.start_unix_ns ? { content: relative(row.run.start_unix_ns), title: absolute(row.run.start_unix_ns) } : { content: unknown() } },
      { key: "commit", heading: "Commit", words: true, value: (row) => row.run.commit, cell: (row) => row.run.commit ? { content: element("code", {}, row.run.commit.slice(0, 10)), title: row.run.commit } : { content: "–", mark: "none" } },
      { key: "state", heading: "State", words: true, value: (row) => row.run.failed || row.run.state, cell: (row) => row.run.state ? stateCell(row.run) : "" },
      { key: "value", heading: historyTitle(metric.key), value: (row) => row.value, cell: (row) => row.value === null ? summaryCell({ summary: "ready", ...row.run }, metric.key, metric.unit) : { content: shown(row.value, metric.unit), title: exact(row.value, metric.unit) } },
      { key: "before", heading: "Against the run before", value: (row) => row.value !== null && row.before ? row.value / row.before - 1 : null, cell: (row) => row.value === null || !row.before ? { content: "–", mark: "none" } : signed(row.value / row.before - 1, "share") },
      { key: "change", heading: "Change", words: true, cell: (row) => changes.has(row.id) ? { content: `${signed(changes.get(row.id).change, "share")} from here on`, mark: changes.get(row.id).better ? "good" : "bad" } : "" },
      { key: "tags", heading: "Tags and note", words: true, cell: (row) => ({ content: element("span", {}, ...tagList(row.run), row.run.note || ""), title: row.run.note }) }] });
  table.setRows(rows);
  return table;
}
