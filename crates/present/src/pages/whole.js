// Shows all reports of a run below each other: an exported page is that view, with its data inside.

function wholeView(main) {
  const id = SITE.run, tables = [];
  const nav = element("nav", { class: "side", "aria-label": "Contents" });
  const first = element("section", { id: "overview" }), rest = element("div", {});
  main.replaceChildren(element("div", { class: "frame whole" }, nav, element("div", { class: "content" }, first, rest)));
  const view = {
    title: "Report", crumbs: [], search: (text) => { const test = matcher(text); for (const one of tables) if (one instanceof Table) one.filter(test); },
    changed: () => showPlace(), close: () => tables.forEach((one) => one.close()), get table() { return tables.find((one) => one instanceof Table); },
  };
  // The address may name a section, which is there only now.
  const showPlace = () => { const name = parseHash(location.hash).path; if (name) $(name)?.scrollIntoView(); else main.scrollTop = 0; };
  view.ready = (async () => {
    const run = await getRun(id), made = overview(first, run);
    view.title = `${runTitle(run)} – report`;
    view.crumbs = [[runTitle(run), ""]];
    titles(view);
    await made.ready;
    const { parts, absent, documents } = await wholeParts(id, tables);
    first.querySelector(".facts").append(...cpuFigures(documents.get("threads"), run));
    if (absent.length) parts.push(element("section", { id: "absent" }, element("h2", {}, "Not recorded"), element("dl", { class: "absent" }, ...absent.flatMap(([kind, why]) => [element("dt", {}, titled(kind)), element("dd", {}, withCode(why))]))));
    rest.replaceChildren(...parts);
    nav.replaceChildren(...wholeContents(new Set(parts.map((part) => part.id))));
    showPlace();
  })();
  return view;
}

// Makes the section of each report that has something; `absent` has the reason for each other one.
async function wholeParts(id, tables) {
  const parts = [], absent = [], documents = new Map();
  // The overview has the findings.
  for (const kind of kindGroups().flatMap(([, kinds]) => kinds).filter((name) => name !== "findings")) {
    const answer = await api(`runs/${id}/report/${kind}`), all = tablesOf(answer);
    documents.set(kind, answer);
    if (answer.tables && all.every(({ rows }) => !rows.length)) { absent.push([kind, all.map(({ missing }) => missing).find(Boolean) || "nothing of it was recorded"]); continue; }
    parts.push(element("section", { id: kind, "data-kind": kind }, element("h2", {}, titled(kind), element("span", { class: "dim" }, aboutKind(kind))),
      ...documentParts(withoutCommon(answer, kind), kind, tables)));
  }
  return { parts, absent, documents };
}

// Returns a document without what the overview or the summary shows too.
function withoutCommon(answer, kind) {
  if (kind === "memory") { const { ranks, killed } = answer; return { ranks, killed }; }
  if (kind === "summary") return { ...answer, problems: [], notes: [], ranks: answer.ranks.map(({ host_memory: _, timeline: __, ...rank }) => rank) };
  return { ...answer, problems: [] };
}

function wholeContents(there) {
  const link = (id, text) => element("li", {}, element("a", { href: `#${id}` }, text));
  const groups = kindGroups().map(([title, kinds]) => [title, kinds.filter((kind) => there.has(kind))]).filter(([, kinds]) => kinds.length);
  return [element("ul", {}, link("overview", "Overview"), link("findings", "Findings")),
    ...groups.flatMap(([title, kinds]) => [element("h3", {}, title), element("ul", {}, ...kinds.map((kind) => link(kind, titled(kind))))]),
    there.has("absent") ? element("ul", {}, link("absent", "Not recorded")) : ""];
}

// Returns figures of the CPU time of all threads. Processes have the sums of their threads; if some
// rows are not in the page, a sum would be too small.
function cpuFigures(threads, run) {
  const of = ["threads", "processes"].find((key) => threads?.tables?.[key]?.length && !threads.shown[key].left_out);
  if (!of) return [];
  const sum = (key) => threads.tables[of].reduce((all, row) => all + (row[key] || 0), 0), ran = sum("running_ns"), wall = lastedNs(run);
  return [figureElement("CPU used", shown(ran, "ns"), wall ? `${(ran / wall).toFixed(2)} cores on average` : ""),
    figureElement("Waiting for a core", shown(sum("ready_ns"), "ns"), "all threads added up")];
}

// Buttons of an exported page: the pages beside it, and printing.
function exportedActs() {
  return [SITE.timeline ? element("a", { class: "button", href: SITE.timeline }, "Timeline") : null, SITE.flame ? element("a", { class: "button", href: SITE.flame }, "Flame graph") : null,
    element("button", { onclick: () => print() }, "Print")];
}
