// Shows one report of a run: its options, notes, plot and tables.

// Options that only some kinds of report have. Their values are part of the view's address.
const KIND_OPTIONS = {
  cpu: ["lines", "mine", "sort", "within", "thread"], "critical-path": ["within"], steps: ["steady"], sequences: ["operator"],
};
const HTA_KINDS = new Set(["breakdown", "idle", "overlap", "kernels", "launches", "queue", "bandwidth", "sequences", "critical-path"]);
const OPTION_TEXTS = {
  lines: ["By line of source", "check"], mine: ["Only your own files", "check"], steady: ["Without warm-up", "check"], hta: ["As HTA 0.5.0", "check"],
  within: ["Within range", "text"], thread: ["Thread", "text"], operator: ["Operator", "text"],
};
const STEP_SOURCES = ["auto", "explicit", "profiler", "optimizer", "loader", "inferred"];

function reportView(place, run, kind, route) {
  const tables = [], body = element("div", { class: "document", "aria-busy": "true" });
  const controls = reportControls(run, kind, route.query, (change) => { setQuery(change); load(); });
  place.replaceChildren(element("div", { class: "head" }, element("h2", {}, titled(kind)), element("span", { class: "dim" }, aboutKind(kind)), element("span", { class: "space" }), controls), body);
  let round = 0;
  async function load() {
    const mine = ++round, query = parseHash(location.hash).query, asked = {};
    for (const name of ["rank", "steps_from", "within", "sort", "steady", "hta", "lines", "mine", "operator", "thread"]) if (query[name]) asked[name] = query[name];
    // The previous answer stays until the next one, so that nothing jumps.
    if (!body.firstChild) body.replaceChildren(waiting("The report is being computed"));
    body.setAttribute("aria-busy", "true");
    try {
      const answer = await api(`runs/${run.id}/report/${kind}${queryText(asked)}`);
      if (mine !== round) return;
      tables.splice(0).forEach((one) => one.close());
      body.replaceChildren(...documentParts(answer, kind, tables));
      find(query.q || "");
    } catch (error) {
      if (mine === round) body.replaceChildren(errorBox(error, load));
    } finally {
      if (mine === round) body.setAttribute("aria-busy", "false");
    }
  }
  const find = (text) => { const test = matcher(text); for (const one of tables) if (one instanceof Table) one.filter(test); };
  load();
  return {
    search: find, changed: () => { load(); },
    get table() { return tables.find((one) => one instanceof Table && one.shown.length); },
    close: () => { round++; tables.forEach((one) => one.close()); },
  };
}

function waiting(text) {
  return element("p", { class: "waiting", role: "status" }, text);
}

function reportControls(run, kind, query, change) {
  // A static site has only the reports without options, and an archive with one rank has no choice
  // either.
  if (SITE || (ABOUT.archive && !(run.ranks > 1 && kind !== "findings"))) return null;
  const select = (name, label, choices) => element("label", {}, label, element("select", { onchange: (event) => change({ [name]: event.target.value || null }) },
    ...choices.map(([value, text]) => element("option", { value, selected: (query[name] || "") === value }, text))));
  const made = [];
  if (run.ranks > 1) made.push(select("rank", "Rank", [["", "all"], ...Array.from({ length: Math.min(run.ranks, 4096) }, (_, rank) => [String(rank), String(rank)])]));
  // An archive offers only the choice of a rank, because its sums were computed when it was
  // written.
  if (ABOUT.archive) return element("div", { class: "controls" }, ...made);
  made.push(select("steps_from", "Steps from", STEP_SOURCES.map((source) => [source === "auto" ? "" : source, source])));
  const names = [...(KIND_OPTIONS[kind] || []), ...(HTA_KINDS.has(kind) ? ["hta"] : [])];
  for (const name of names) {
    if (name === "sort") { made.push(select("sort", "Order by", [["", "self"], ["total", "total"], ["waited", "waited"]])); continue; }
    const [text, type] = OPTION_TEXTS[name];
    if (type === "check") made.push(element("label", {}, element("input", { type: "checkbox", checked: query[name] === "1", onchange: (event) => change({ [name]: event.target.checked ? "1" : null }) }), text));
    else made.push(element("label", {}, text, element("input", { type: "text", value: query[name] || "", size: 12, onchange: (event) => change({ [name]: event.target.value || null }) })));
  }
  return element("div", { class: "controls" }, ...made);
}

// Returns the tables of a document as { key, rows, how, missing }; `how` is what the document says
// about showing the table, and `missing` is the reason for a table without rows.
function tablesOf(answer) {
  const all = Object.entries(answer.tables || {}).filter(([key, rows]) => Array.isArray(rows) && !key.endsWith("_missing"));
  return all.map(([key, rows]) => ({ key, rows, how: answer.shown?.[key], missing: answer.tables[`${key}_missing`] || "" }));
}
// Whether a table is folded at first: the user may want it, but not before the others.
function isAside({ key, rows, how }, all) {
  if (how) return how.view === "data" || how.view === "curve";
  return all.some((other) => other.key === `${key}_lines`) || isCurve({ key, rows }) || key === "evidence" || (/(^|_)by_rank$/.test(key) && all.length > 1);
}

// Makes all parts of a document in its own order: notes, plots, tables. The reasons for missing
// parts come last.
function documentParts(answer, kind, tables) {
  const parts = [];
  if (answer.problems?.length) parts.push(element("ul", { class: "gaps" }, ...answer.problems.map((text) => element("li", {}, text))));
  if (answer.notes?.length) parts.push(element("ul", { class: "notes" }, ...answer.notes.map((text) => element("li", {}, withCode(text)))));
  if (!answer.tables) return [...parts, ...plainDocument(answer, kind, tables)];
  parts.push(...reportCharts(answer, tables));
  const all = tablesOf(answer), absent = new Map();
  for (const table of all) {
    const { key, rows, how, missing } = table, name = how?.title || titled(key);
    if (!rows.length) {
      // Nobody misses a table that is not shown.
      if (how?.view !== "data") absent.set(missing, [...(absent.get(missing) || []), name]);
    } else if (kind === "findings" && key === "findings") parts.push(...rows.map((row) => findingCard(row)));
    else if (how?.view === "lines" || key.endsWith("_lines") && rows.every((row) => typeof row.line === "string")) parts.push(element("section", { class: "part" }, element("h3", {}, name), element("ul", { class: "notes" }, ...rows.map((row) => element("li", {}, withCode(row[how?.columns[0].key ?? "line"]))))));
    else if (isAside(table, all)) parts.push(folded(`${name}, ${formatCount(rows.length + (how?.left_out || 0))} rows`, () => documentTable(key, rows, kind, tables, { how })));
    else parts.push(documentTable(key, rows, kind, tables, { how }));
  }
  if (absent.size) parts.push(element("section", { class: "part" }, element("h3", {}, "Not in this run"),
    element("dl", { class: "absent" }, ...[...absent].flatMap(([why, keys]) => [element("dt", {}, keys.join(", ")), element("dd", {}, withCode(why || "nothing of it was recorded"))]))));
  return parts;
}
// Makes the documents of the summary and of memory, which are nested figures.
function plainDocument(answer, kind, tables) {
  const rest = Object.fromEntries(Object.entries(answer).filter(([key]) => !["version", "tprof", "kind", "notes", "problems", "findings", "findings_missing"].includes(key)));
  // Both kinds are mainly about ranks, so figures of the run and of its processes come after those
  // of ranks.
  const { ranks: all, processes, run, completeness, overhead, ...others } = rest;
  // The curves come before the lists of call stacks.
  const ranks = all?.map(({ host_memory, timeline, ...of }) => ({ ...of, timeline, host_memory }));
  const inOrder = Object.fromEntries(Object.entries({ ranks, ...others, completeness, overhead, run, processes }).filter(([, value]) => value !== undefined));
  return [documentObject(inOrder, kind, tables)];
}
function folded(text, make) {
  const inner = element("div", {}), fold = element("details", {}, element("summary", {}, text), inner);
  fold.addEventListener("toggle", () => { if (fold.open && !inner.firstChild) inner.append(make()); });
  return fold;
}
