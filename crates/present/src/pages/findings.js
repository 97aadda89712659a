// Shows findings: the cause of lost time, how much it costs, where it is, and what to do.

const SEVERITY_ORDER = ["note", "low", "medium", "high", "critical"];
function severityClass(severity) {
  return SEVERITY_ORDER.includes(severity) ? severity : "note";
}

function findingCard(row) {
  const id = parseHash(location.hash).parts[1];
  const gain = [];
  if (row.gain_step_ns !== null && row.gain_step_ns !== undefined) gain.push(`up to ${shown(row.gain_step_ns, "ns")} a step`);
  else if (row.gain_ns !== null && row.gain_ns !== undefined) gain.push(`up to ${shown(row.gain_ns, "ns")}`);
  if (row.size_bytes !== null && row.size_bytes !== undefined) gain.push(shown(row.size_bytes, "bytes"));
  if (row.gain_share !== null && row.gain_share !== undefined) gain.push(percentText(row.gain_share));
  const fact = (name, content) => content ? [element("dt", {}, name), element("dd", {}, content)] : [];
  return element("article", { class: `card ${severityClass(row.severity)}` },
    element("h4", {}, element("span", { class: "word" }, row.severity), ` ${row.rule}${row.subject ? `, ${row.subject}` : ""}`, gain.length ? element("span", { class: "gain", title: "an upper bound; gains overlap, so do not add them up" }, gain.join(", ")) : null),
    element("p", { class: "what" }, withCode(row.what || "")),
    element("dl", {},
      ...fact("evidence", row.seen && withCode(row.seen)),
      ...fact("line", row.function && element("code", {}, `${row.function}${row.file ? ` (${row.file}${row.line ? `:${row.line}` : ""})` : ""}`)),
      ...fact("where", row.look_at && whereLinks(row.look_at, id)),
      ...fact("try", row.try && withCode(row.try))));
}

// Makes a text a link to the timeline, if there is one.
function timelineLink(text, href) {
  return href ? element("a", { href, title: "Show in the timeline" }, text) : text;
}

// Turns times of ranks ("rank 0: 222.4 ms from 0.028719 s; …") into links to the timeline.
function whereLinks(text, id) {
  const parts = [];
  let rank = null;
  for (const part of text.split("; ")) {
    const named = /^rank (\d+): /.exec(part), time = /([\d.,]+) (ns|us|µs|ms|s) from ([\d.]+) s/.exec(part);
    if (named) rank = Number(named[1]);
    if (parts.length) parts.push("; ");
    if (!time || rank === null) { parts.push(part); continue; }
    const lasts = Number(time[1].replaceAll(",", "")) * { ns: 1, us: 1e3, "µs": 1e3, ms: 1e6, s: 1e9 }[time[2]];
    parts.push(timelineLink(part, timelineHref(id, { rank, start: Math.round(Number(time[3]) * 1e9), lasts })));
  }
  return element("span", {}, ...parts);
}
