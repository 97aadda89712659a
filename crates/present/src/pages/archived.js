// What the pages do differently for an archive: which figures a run has, notices about the archive
// itself, and the overview of a run, which is computed from sums.

// Returns whether runs have a figure. The memory figures of an archive are of devices, those of a
// directory are of processes.
function hasFigure(key) {
  return Boolean(ABOUT.archive) === (key === "peak_device_bytes") || !/^peak_|^processes$/.test(key);
}

function noArchivedRuns() {
  return element("div", { class: "empty" }, element("h2", {}, "No runs in this archive yet"), element("p", {}, "Add one in a terminal; it appears here:"),
    element("pre", {}, element("code", {}, "tprof archive RUN --to ", ABOUT.archive || "ARCHIVE")));
}

// Makes the notices above the list: which runs are not in it, and why it may be old.
function archiveNotices({ problems, stale }) {
  const made = [];
  if (stale) made.push(errorBox({ message: `whether there are more runs is not known: ${stale.error}`, why: stale.why, advice: stale.try }));
  if (problems?.length) made.push(element("ul", { class: "gaps" }, ...problems.slice(0, 8).map((text) => element("li", {}, text)), problems.length > 8 ? element("li", {}, `and ${problems.length - 8} more`) : null));
  return made;
}

// Reports that the overview shows in part, in order. Each report also has a page of its own.
const ARCHIVED_PARTS = [["kernels", "kernels", 8], ["breakdown", "breakdown", 8], ["comm", "comm", 8], ["idle", "idle", 8], ["device-memory", "pools", 8]];

function archivedOverview(content, run) {
  const about = element("div", {}), figures = element("dl", { class: "facts" }), tables = [];
  const found = element("section", {}, element("h2", {}, "Findings"), waiting("The findings are being read"));
  const parts = element("div", {});
  content.replaceChildren(about, figures, found, parts);
  let closed = false;
  const paint = () => {
    const notes = run.notes || [];
    about.replaceChildren(...runHead({ ...run, why: run.state === "damaged" ? run.why : run.state_why && run.state ? run.state_why : null }, () => {}),
      element("p", { class: "dim" }, `archived ${run.archived_unix_ns ? relative(run.archived_unix_ns) : ""}; timelines, flame graphs and the other reports need the run itself (`, element("code", {}, "tprof serve DIR"), ")"),
      notes.length ? element("ul", { class: "gaps" }, ...notes.slice(0, 8).map((note) => element("li", {}, note)), notes.length > 8 ? element("li", {}, `and ${notes.length - 8} more`) : null) : "");
    paintFigures(figures, run, {});
  };
  paint();
  const loadFindings = async () => {
    try {
      const answer = await api(`runs/${run.id}/report/findings`);
      if (closed) return;
      const rows = answer.tables.findings;
      found.replaceChildren(element("h2", {}, "Findings"), ...(rows.length ? rows.map(findingCard) : [element("p", { class: "verdict plain" }, answer.tables.findings_missing || "The archive has none.")]));
    } catch (error) { if (!closed) found.replaceChildren(element("h2", {}, "Findings"), errorBox(error, loadFindings)); }
  };
  // The parts are loaded one after another, because each is a query to the archive.
  const loadParts = async () => {
    for (const [kind, key, most] of ARCHIVED_PARTS) {
      if (closed) return;
      const place = element("section", {});
      parts.append(place);
      try {
        const { tables: of } = await api(`runs/${run.id}/report/${kind}`);
        if (closed) return;
        if (!of[key].length) { place.remove(); continue; }
        const made = documentTable(key, of[key].slice(0, most), kind, tables);
        made.querySelector("h3").replaceChildren(element("a", { href: `#/run/${run.id}/${kind}` }, titled(kind)), element("span", { class: "dim" }, of[key].length > most ? `  the first ${most} of ${formatCount(of[key].length)} rows` : ""));
        place.replaceChildren(made);
      } catch (error) { if (!closed) place.replaceChildren(element("h3", {}, titled(kind)), errorBox(error)); }
    }
  };
  loadFindings().then(loadParts);
  const stop = run.summary !== "pending" ? () => {} : poll(POLL_MS, async () => { run = await getRun(run.id); paint(); return run.summary === "pending"; });
  return { close: () => { closed = true; stop(); tables.forEach((one) => one.close()); }, update: (fresh) => { run = fresh; paint(); }, get table() { return tables[0]; } };
}
