// Shows rows of a document as a table, and explains unknown values. The document says how each of
// its tables is shown: title, columns, headings, units. Where it doesn't (the summary, memory,
// archives), the keys and the values decide.

// An exported page has all reports below each other, so that each table has fewer rows at first.
const FIRST_ROWS = INSIDE ? 12 : 30;
// Units of values by the names that documents have for units of columns.
const UNITS = { duration: "ns", time: "ns", bytes: "bytes", rate: "bytes/s", share: "share", id: "id", count: "count", number: "none", text: "none", name: "none", flag: "none" };
const NO_COLUMN = /_missing$|^error_|^estimate$/;
// Keys of texts that name a row. Their columns come before those of figures.
const NAMES = new Set(["name", "function", "operator", "kernel", "sequence", "range", "thread", "process", "counter", "module", "copy", "place", "what", "line", "next", "label", "file", "rule", "command", "span"]);
const LEADING = new Set(["rank", "device", "stream", "context", "step", "host", "pid", "part", "finding", "kind"]);

// Columns whose values are bytes. Only the table's name says so, and not the column's key.
const BYTE_TABLES = { byte_counters: new Set(["min", "mean", "max", "last"]) };

function columnKeys(rows) {
  const keys = new Set();
  for (const row of rows.slice(0, 200)) for (const key of Object.keys(row)) if (!NO_COLUMN.test(key)) keys.add(key);
  // If a key has a short form, only one column is shown, whose cells have both forms.
  for (const key of [...keys]) if (keys.has(`short_${key}`)) keys.delete(`short_${key}`); else if (keys.has(`${key}_short`)) keys.delete(`${key}_short`);
  return order([...keys], rows);
}
// Orders columns: rank, device and step, then the texts that name the row, then its figures.
function order(keys, rows) {
  const words = (key) => rows.some((row) => typeof row[key] === "string");
  const last = keys[keys.length - 1];
  const name = NAMES.has(last) && words(last) ? last : keys.findLast((key) => NAMES.has(key) && words(key) && !LEADING.has(key));
  if (!name) return keys;
  const rest = keys.filter((key) => key !== name);
  let at = 0;
  while (at < rest.length && LEADING.has(rest[at])) at++;
  return [...rest.slice(0, at), name, ...rest.slice(at)];
}

// Returns the columns of a table as { key, heading, unit, signed, isExtra }. Extra columns are shown
// only on request.
function columnsOf(rows, kind, table, how) {
  if (how) return how.columns.map(({ key, heading: text, unit, signed }) => ({ key, heading: text || heading(key), unit: UNITS[unit], signed, isExtra: !text }));
  const keys = columnKeys(rows), texts = headings(keys);
  const some = (key) => rows.find((row) => row[key] !== null && row[key] !== undefined);
  return keys.map((key) => ({ key, heading: texts.get(key), unit: BYTE_TABLES[table]?.has(key) ? "bytes" : unitOf(key, kind, some(key)), signed: key.startsWith("change"), isExtra: false }));
}

// Returns the columns that have a value in some row, and a line for the reason why each other
// column that is shown has none.
function splitColumns(rows, columns) {
  const reasons = new Map(), kept = [];
  const note = (text, why) => { if (!reasons.has(why)) reasons.set(why, new Set()); reasons.get(why).add(text); };
  for (const column of columns) {
    const { key, isExtra } = column, has = rows.some((row) => row[key] !== null && row[key] !== undefined && row[key] !== "");
    const why = isExtra ? [] : [...new Set(rows.map((row) => row[`${key}_missing`]).filter(Boolean))];
    for (const one of why.slice(0, 3)) note(column.heading, one);
    if (has) kept.push(column);
  }
  return { kept, reasons: [...reasons].map(([why, keys]) => `${[...keys].join(", ")}: ${why}`) };
}

function documentColumn({ key, heading: text, unit, signed }, rows) {
  const some = rows.find((row) => row[key] !== null && row[key] !== undefined);
  const words = typeof some[key] === "string" || Array.isArray(some[key]), numeric = typeof some[key] === "number";
  const most = unit === "share" && rows.every((row) => !(row[key] > 1)) ? 1 : 0;
  return {
    key, words, heading: text, about: `${key}${numeric && !["none", "id", "count"].includes(unit) ? `, ${unit}` : ""}: sort`,
    value: (row) => Array.isArray(row[key]) ? row[key].join(" ") : row[key],
    cell: (row) => documentCell(row, key, unit, most, signed),
  };
}

function documentCell(row, key, unit, most, isSigned = false) {
  const value = row[key];
  if (value === null || value === undefined) {
    const why = row[`${key}_missing`];
    return why ? { content: unknown(why) } : { content: "–", mark: "none" };
  }
  if (typeof value === "number") {
    const error = row[`error_${key}`], estimate = error !== undefined && error !== null;
    const sign = isSigned && value > 0 ? "+" : "";
    return { content: `${estimate ? "~" : ""}${sign}${shown(value, unit)}`, title: estimate ? `${exact(value, unit)} ± ${shown(error, unit)}, an estimate (95 %)` : exact(value, unit), share: most && value >= 0 && value <= 1 ? value : null };
  }
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (key === "stack") return stackCell(value);
  if (Array.isArray(value)) return listCell(value);
  if (typeof value === "object") return { content: JSON.stringify(value), title: JSON.stringify(value, null, 1) };
  const depth = row.depth && (key === "line" || key === "function") ? "\u00a0\u00a0".repeat(Math.min(40, row.depth)) : "";
  const short = row[`short_${key}`] ?? row[`${key}_short`];
  // A span says where on the timeline it is.
  if (key === "from_time" && typeof row.start_ns === "number" && typeof row.duration_ns === "number") {
    const id = parseHash(location.hash).parts[1];
    return { content: timelineLink(value, timelineHref(id, { rank: String(row.rank ?? "").replace(/\D.*$/, ""), start: row.start_ns, lasts: row.duration_ns, thread: row.tid })) };
  }
  return { content: depth + (short || value), title: value.length > 24 || short ? value : null, mark: value === "" ? "none" : "" };
}
function listCell(values) {
  if (!values.length) return { content: "–", mark: "none" };
  const texts = values.map((one) => typeof one === "object" ? JSON.stringify(one) : String(one));
  return { content: texts.length > 1 ? `${texts[0]}  (${texts.length} in all)` : texts[0], title: texts.slice(0, 40).join("\n") };
}

// Shows the functions of the innermost frames, without modules, files and lines; the tooltip has the
// stack.
function stackCell(value) {
  const frames = Array.isArray(value) ? value : String(value).split("\n");
  const names = frames.slice(0, 4).map((frame) => frame.replace(/ \([^()]*\)$/, "")).map((name) => name.length > 80 ? `${name.slice(0, 80)}…` : name);
  return { content: names.join(" ‹ ") || "(no stack)", title: frames.slice(0, 40).join("\n") };
}

// Makes the table of a document's rows, with its title and notes. Adds it to `tables`, in which the
// user can search. `how` is what the document says about the table.
function documentTable(key, rows, kind, tables, { missing, how, leftOut = how?.left_out || 0 } = {}) {
  const name = how?.title || titled(key), count = rows.length + leftOut;
  const title = element("h3", {}, name, rows.length ? element("span", { class: "dim" }, `  ${formatCount(count)} row${count === 1 ? "" : "s"}`) : null);
  if (!rows.length) return element("section", { class: "part" }, title, element("p", { class: "none" }, "None", missing ? ": " : "", missing ? withCode(missing) : ""));
  const { kept, reasons } = splitColumns(rows, columnsOf(rows, kind, key, how)), ids = new Map(rows.map((row, at) => [row, at]));
  const extra = kept.filter((column) => column.isExtra).length;
  const make = (columns) => {
    const table = new Table({
      label: name, columns: columns.map((column) => documentColumn(column, rows)), rowKey: (row) => ids.get(row), limit: Math.min(FIRST_ROWS, how?.folded_from || FIRST_ROWS),
      text: (row) => kept.map((column) => row[column.key]).filter((value) => typeof value === "string" || Array.isArray(value)).join(" "),
    });
    table.setRows(rows);
    return table;
  };
  // A table whose columns are all extra shows them.
  let table = make(extra < kept.length ? kept.filter((column) => !column.isExtra) : kept);
  tables.push(table);
  const place = element("div", {}, table.element, table.more);
  if (extra && extra < kept.length) {
    title.append(element("button", { class: "quiet more-columns", title: kept.filter((column) => column.isExtra).map((column) => column.heading).join(", "), onclick: (event) => {
      const all = make(kept);
      all.filter(table.test);
      tables[tables.indexOf(table)] = table = all;
      place.replaceChildren(all.element, all.more);
      event.target.remove();
    } }, `${extra} more column${extra === 1 ? "" : "s"}`));
  }
  return element("section", { class: "part", "data-table": key }, title, how?.about ? element("p", { class: "dim about" }, withCode(how.about)) : null, place,
    how?.folded ? element("p", { class: "dim" }, withCode(how.folded)) : null,
    leftOut ? element("p", { class: "dim" }, `${formatCount(leftOut)} more rows are not in this page; `, element("code", {}, `tprof report ${kind} --json`), " prints them all") : null,
    reasons.length ? element("ul", { class: "reasons" }, ...reasons.slice(0, 6).map((reason) => element("li", {}, "? ", withCode(reason))), reasons.length > 6 ? element("li", {}, `and ${reasons.length - 6} more reasons`) : null) : null);
}

// Shows any value of a document other than a table's rows: figures, series over time, lists.
function documentObject(value, kind, tables, depth = 0) {
  const facts = [], parts = [];
  // A null `gpu` or `gpus` in the memory report is not shown, because the summary shows it.
  const keys = Object.keys(value).filter((key) => !NO_COLUMN.test(key) && !(value[key] === null && kind === "memory" && /^gpus?$/.test(key)));
  const texts = headings(keys);
  const series = keys.filter((key) => Array.isArray(value[key]) && value[key].length > 1 && value[key].every((one) => one === null || typeof one === "number"));
  if ("bucket_ns" in value && series.length) parts.push(overTime(value, series, tables));
  const none = new Map();
  for (const key of keys) {
    const one = value[key], unit = unitOf(key, kind, value);
    if (series.includes(key) && "bucket_ns" in value) continue;
    if (one === null && value[`${key}_missing`]) none.set(value[`${key}_missing`], [...(none.get(value[`${key}_missing`]) || []), heading(key)]);
    else if (one === null || one === "") continue;
    else if (Array.isArray(one) && one.length && one.length < 12 && one.every((word) => typeof word === "string" && word.length < 60)) facts.push([texts.get(key), { content: one.join(key === "command" ? " " : ", "), title: one.join("\n") }]);
    else if (Array.isArray(one)) parts.push(documentList(key, one, kind, tables, depth, { missing: value[`${key}_missing`], leftOut: (value[`${key}_total`] ?? one.length) - one.length }));
    else if (typeof one === "object") parts.push(element("section", { class: "part" }, element(depth ? "h4" : "h3", {}, titled(key)), documentObject(one, kind, tables, depth + 1)));
    else facts.push([texts.get(key), documentCell(value, key, unit, 0)]);
  }
  return element("div", { class: "object" },
    facts.length ? element("dl", { class: "figures" }, ...facts.map(([name, cell]) => element("div", {}, element("dt", {}, name), element("dd", { title: cell.title || null }, cell.content ?? cell)))) : null,
    none.size ? element("ul", { class: "reasons" }, ...[...none].map(([why, keys]) => element("li", {}, "? ", keys.length > 4 ? `${keys.slice(0, 3).join(", ")} and ${keys.length - 3} more` : keys.join(", "), ": ", withCode(why)))) : null,
    ...parts);
}
function documentList(key, list, kind, tables, depth, { missing, leftOut }) {
  if (!list.length) return missing ? element("section", { class: "part" }, element("h3", {}, titled(key)), element("p", { class: "none" }, "None: ", withCode(missing))) : null;
  if (typeof list[0] !== "object" || list[0] === null) return element("section", { class: "part" }, element("h3", {}, titled(key)), element("ul", {}, ...list.slice(0, 100).map((one) => element("li", {}, withCode(String(one))))));
  const nested = list.some((row) => Object.values(row).some((one) => one && typeof one === "object" && !Array.isArray(one)));
  if (!nested) return documentTable(key, list, kind, tables, { missing, leftOut });
  return element("section", { class: "part" }, element("h3", {}, titled(key)), ...list.map((row, at) => {
    const inner = element("div", {}), fold = element("details", { open: at === 0 && list.length <= 8 }, element("summary", {}, row.label || row.name || `${heading(key)} ${at + 1}`), inner);
    const fill = () => { if (fold.open && !inner.firstChild) inner.append(documentObject(row, kind, tables, depth + 1)); };
    fold.addEventListener("toggle", fill);
    fill();
    return fold;
  }));
}
function overTime(value, series, tables) {
  const bytes = series.filter((key) => unitOf(key) === "bytes"), all = bytes.length ? bytes : series;
  // Mapped bytes are often many times larger, so that the other curves would be flat, and the sum of
  // RSS counts shared pages several times.
  const some = all.filter((key) => key !== "mapped_bytes" && !(key === "rss_bytes" && all.includes("resident_bytes"))), chosen = some.length ? some : all;
  const chart = new LineChart({ title: "Over time", unit: unitOf(chosen[0]), height: 200 });
  const x = value[chosen[0]].map((_, at) => value.start_ns + at * value.bucket_ns);
  chart.set(x, chosen.map((key) => ({ label: heading(key), values: value[key] })));
  tables.push(chart);
  return element("div", {}, lineKey(chosen.map(heading)), chart.element);
}
function lineKey(names) {
  return element("div", { class: "key" }, ...names.map((name, at) => {
    const dot = element("i", {});
    dot.style.background = lineColour(at);
    return element("span", {}, dot, name);
  }));
}
