// Compares two runs. Shows for each metric how much it changed, and how certain the change is.

VIEWS.set("compare", (main, route) => {
  const ids = route.parts.slice(1);
  if (ids.length > 2 && ids[2] !== "flame") return manyView(main, ids, route);
  return pairView(main, ids[0], ids[1], ids[2] === "flame", route);
});

// Tables with one metric per row. All other tables show what time or memory was spent on.
const METRIC_TABLES = { times: ["Times of a step", "ns"], shares: ["Shares", "share"], counts: ["Counts of a step", "count"], run: ["The whole run", "ns"], memory: ["Memory", "bytes"], host: ["Processes and threads", "count"] };
const WORSE = new Set(["worse", "worse?", "more", "more?"]), BETTER = new Set(["better", "better?", "less", "less?"]);

function pairView(main, a, b, flame, route) {
  const body = element("div", { class: "list" }, waiting("The runs are being compared")), tables = [];
  let closed = false;
  main.replaceChildren(body);
  const scene = { title: `${a} and ${b}`, crumbs: [["compare", ""]], back: flame ? `#/compare/${a}/${b}` : "#/", get table() { return tables.find((one) => one instanceof Table && one.shown.length); },
    search: flame ? null : (text) => { const test = matcher(text); for (const one of tables) one.filter(test); }, close: () => { closed = true; tables.forEach((one) => one.close()); } };
  const load = async () => {
    try {
      const [first, second] = await Promise.all([getRun(a), getRun(b)]);
      if (closed) return;
      body.replaceChildren(pairHead(first, second, flame, route.query.rank));
      if (flame) { body.classList.add("whole-height"); body.append(flamePlace(a, b)); return; }
      body.append(waiting("The runs are being compared"));
      const answer = await api(`diff${queryText({ a, b, rank: route.query.rank })}`);
      if (closed) return;
      body.lastChild.remove();
      body.append(...diffParts(answer, tables));
      scene.search(route.query.q || "");
    } catch (error) { if (!closed) body.append(errorBox(error, () => { body.replaceChildren(); load(); })); }
  };
  load();
  return scene;
}

function pairHead(a, b, flame, rank) {
  const ranks = flame || SITE || ABOUT.archive ? 0 : Math.min(a.ranks || 0, b.ranks || 0, 4096);
  const select = ranks > 1 ? element("label", {}, "Rank", element("select", { onchange: (event) => { location.hash = hashOf(["compare", String(a.id), String(b.id)], { rank: event.target.value }); } },
    element("option", { value: "" }, "all"), ...Array.from({ length: ranks }, (_, at) => element("option", { value: at, selected: String(at) === rank }, String(at))))) : null;
  const side = (letter, run) => element("div", { class: "side-of" }, element("b", { class: `letter ${letter}` }, letter.toUpperCase()), element("a", { class: "mono", href: `#/run/${run.id}`, title: runTitle(run) }, runTitle(run)),
    element("span", { class: "dim" }, run.start_unix_ns ? relative(run.start_unix_ns) : "", run.commit ? ` · ${run.commit.slice(0, 8)}` : "", run.wall_ns ? ` · ${duration(run.wall_ns)}` : "", run.tags?.length ? ` · ${run.tags.join(", ")}` : ""));
  return element("div", { class: "head pair" }, element("div", {}, side("a", a), side("b", b)), element("span", { class: "space" }), select,
    ABOUT.archive ? null : element("a", { class: "button", href: flame ? `#/compare/${a.id}/${b.id}` : `#/compare/${a.id}/${b.id}/flame` }, flame ? "Figures" : "Flame difference"), flame ? element("a", { class: "button", href: flameDifferenceAddress(a.id, b.id), target: "_blank", rel: "noopener" }, "Open in a new tab ↗") : null,
    SITE ? null : element("a", { class: "button", href: `#/compare/${b.id}/${a.id}${flame ? "/flame" : ""}` }, "Swap"));
}
function flamePlace(a, b) {
  const frame = element("iframe", { title: "Flame difference" }), place = element("div", { class: "embedded" }, waiting("The page is being made"), frame), address = flameDifferenceAddress(a, b);
  checkPage(address, `diff/flame${queryText({ a, b })}`).then((error) => { if (error) place.replaceChildren(errorBox(error)); else { frame.src = address; frame.addEventListener("load", () => { place.firstChild.hidden = true; }); } });
  return place;
}

function diffParts(answer, tables) {
  const parts = [], of = answer.tables;
  const notes = [...(answer.other_hardware || []).map((text) => ["gaps", typeof text === "string" ? text : JSON.stringify(text)]), ...(answer.notes || []).map((text) => ["notes", text])];
  for (const side of ["a", "b"]) { const whole = answer[side].completeness; if (whole?.verdict?.startsWith("NOT")) notes.unshift(["gaps", `${side.toUpperCase()} is not complete: ${formatCount(whole.lost)} lost`]); }
  if (notes.length) parts.push(element("ul", { class: "notes" }, ...notes.map(([kind, text]) => element("li", { class: kind === "gaps" ? "warn" : null }, withCode(text)))));
  const metrics = Object.keys(METRIC_TABLES).flatMap((key) => (of[key] || []).map((row) => ({ ...row, group: key })));
  parts.push(metricTable(metrics, tables));
  const missing = Object.keys(METRIC_TABLES).map((key) => of[`${key}_missing`]).filter(Boolean);
  if (missing.length) parts.push(element("ul", { class: "reasons" }, ...missing.map((why) => element("li", {}, "? ", withCode(why)))));
  if (of.differences?.length) parts.push(settingsTable(of.differences, tables));
  const absent = [];
  for (const [key, rows] of Object.entries(of)) {
    if (!Array.isArray(rows) || key in METRIC_TABLES || key === "differences") continue;
    if (rows.length) parts.push(changesTable(key, rows, tables)); else absent.push([titled(key), of[`${key}_missing`]]);
  }
  if (absent.length) parts.push(element("section", { class: "part" }, element("h3", {}, "Not in these runs"), element("dl", { class: "absent" }, ...absent.flatMap(([key, why]) => [element("dt", {}, key), element("dd", {}, withCode(why || ""))]))));
  return parts;
}
function verdictCell(verdict) {
  const kind = WORSE.has(verdict) ? "bad" : BETTER.has(verdict) ? "good" : "";
  const about = { "not sure": "the change is within noise", same: "no change beyond noise" }[verdict] || (verdict?.endsWith("?") ? "how this varies from run to run is not known" : "beyond noise (95 %)");
  return { content: element("span", { class: `verdict-word ${kind}` }, `${kind === "bad" ? "▲ " : kind === "good" ? "▼ " : ""}${verdict || "–"}`), title: about };
}
function sideCell(row, side, unit) {
  const value = row[side], error = row[`error_${side}`];
  if (value === null || value === undefined) return { content: unknown(row[`${side}_missing`]) };
  return { content: `${error ? "~" : ""}${shown(value, unit)}`, title: `${exact(value, unit)}${error ? ` ± ${shown(error, unit)}` : ""}` };
}
function metricTable(rows, tables) {
  const unit = (row) => METRIC_TABLES[row.group][1];
  const table = new Table({ label: "Metrics", rowKey: (row) => row.metric || row.name, rowClass: () => "", text: (row) => row.name, columns: [
    { key: "name", heading: "Metric", words: true, value: (row) => row.name, cell: (row) => ({ content: row.name, title: row.metric }) },
    { key: "a", heading: "A", cell: (row) => sideCell(row, "a", unit(row)) }, { key: "b", heading: "B", cell: (row) => sideCell(row, "b", unit(row)) },
    { key: "change", heading: "Change", cell: (row) => row.change === null ? { content: unknown(row.change_missing) } : { content: signed(row.change, unit(row)), title: exact(row.change, unit(row)) } },
    { key: "interval", heading: "± 95 %", about: "half the width of the interval of the change", cell: (row) => row.interval === null || row.interval === undefined ? { content: unknown(row.interval_missing || "how it varies from run to run is not known") } : { content: shown(row.interval, unit(row)), title: exact(row.interval, unit(row)) } },
    { key: "share", heading: "Change, %", value: (row) => row.change_share, cell: (row) => row.change_share === null ? { content: "–", mark: "none" } : signed(row.change_share, "share") },
    { key: "plot", heading: "−50 %          0          +50 %", class: "plot", cell: (row) => row.change === null || !row.a ? "" : { content: whisker(row.change / Math.abs(row.a), row.interval / Math.abs(row.a), 0.5, verdictCell(row.verdict).content.className) } },
    { key: "verdict", heading: "Verdict", words: true, value: (row) => row.verdict, cell: (row) => verdictCell(row.verdict) }] });
  table.setRows(rows);
  tables.push(table);
  return element("section", { class: "part metrics" }, element("h3", {}, "Metrics"), table.element);
}
function settingsTable(rows, tables) {
  const table = new Table({ label: "Different settings", rowKey: (row) => row.key, text: (row) => `${row.key} ${row.a} ${row.b}`, columns: ["key", "a", "b"].map((key) => ({ key, heading: key === "key" ? "Setting" : key.toUpperCase(), words: true, value: (row) => row[key],
    cell: (row) => row[key] === null || row[key] === undefined ? { content: unknown(row[`${key}_missing`]) } : { content: String(row[key]), title: String(row[key]) } })) });
  table.setRows(rows);
  tables.push(table);
  return element("section", { class: "part" }, element("h3", {}, "What else differs"), table.element);
}

// Makes the table of what time was spent on (kernels, operators, causes…), largest changes first.
function changesTable(key, rows, tables) {
  const unit = "a_bytes" in rows[0] && !("a_ns" in rows[0]) ? "bytes" : "ns", scale = Math.max(...rows.map((row) => Math.abs(row[`change_${unit}`] || 0))) || 1;
  const value = (row, name) => row[`${name}_${unit}`], ids = new Map(rows.map((row, at) => [row, at]));
  const number = (name, text) => ({ key: name, heading: text, value: (row) => value(row, name), cell: (row) => value(row, name) === null || value(row, name) === undefined ? { content: unknown(row[`${name}_${unit}_missing`]) } : { content: name === "change" ? signed(value(row, name), unit) : shown(value(row, name), unit), title: exact(value(row, name), unit) } });
  const has = (name) => rows.some((row) => row[name] !== null && row[name] !== undefined && row[name] !== "");
  const words = (name, text) => ({ key: name, heading: text, words: true, value: (row) => row[name], cell: (row) => ({ content: row[name] ?? "–", title: row[name] }) });
  const table = new Table({ label: titled(key), rowKey: (row) => ids.get(row), limit: 12, text: (row) => `${row.name} ${row.place || ""} ${row.module || ""}`, columns: [
    ...(has("rank") ? [{ key: "rank", heading: "rank", value: (row) => row.rank, cell: (row) => String(row.rank) }] : []), words(has("place") ? "place" : "name", heading(key)), ...(has("module") ? [words("module", "module")] : []),
    number("a", "A"), number("b", "B"), number("change", "Change"), number("interval", "± 95 %"),
    { key: "plot", heading: "", class: "plot", cell: (row) => value(row, "change") === null ? "" : { content: whisker(value(row, "change"), value(row, "interval"), scale, Math.abs(value(row, "change")) <= (value(row, "interval") ?? Infinity) ? "" : value(row, "change") > 0 ? "bad" : "good") } },
    { key: "counts", heading: "Count A → B", class: "second", cell: (row) => row.a_count === undefined || row.a_count === null ? "" : `${plainNumber(Math.abs(row.a_count))} → ${plainNumber(Math.abs(row.b_count))}` },
    ...(has("verdict") ? [{ key: "verdict", heading: "Verdict", words: true, value: (row) => row.verdict, cell: (row) => verdictCell(row.verdict) }] : [{ key: "presence", heading: "Only in", words: true, value: (row) => row.presence, cell: (row) => row.presence || "" }])] });
  table.setRows(rows);
  tables.push(table);
  return element("section", { class: "part" }, element("h3", {}, titled(key), element("span", { class: "dim" }, `  ${formatCount(rows.length)} rows`)), table.element, table.more);
}
