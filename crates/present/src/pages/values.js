// Formats values with their units: rounded for reading, and exact for the tooltip.

const SHARES = new Set(["share", "mfu", "hfu", "gpu_busy", "imbalance", "of_mean", "of_peak", "of_roof", "of_median", "of_steps", "throttled",
  "exposed_of_window", "mean_utilization", "highest_utilization", "mean_memory_utilization", "gpu_utilization", "short_lived_fraction"]);
const IDS = new Set(["rank", "step", "pid", "tid", "parent", "line", "device", "stream", "context", "graph", "correlation", "finding", "channel", "process", "thread", "number", "entry", "group_size", "id"]);
const ENDS = [["_unix_ns", "date"], ["_ns", "ns"], ["bytes_per_s", "bytes/s"], ["flops_per_s", "flop/s"], ["_per_second", "per_second"], ["_per_s", "per_second"],
  ["_bytes", "bytes"], ["_share", "share"], ["_fraction", "share"], ["_utilization", "share"], ["_watts", "watts"], ["_celsius", "°C"], ["_mhz", "MHz"], ["_gb_s", "GB/s"]];
// Keys that are rates of bytes in these kinds of report, although the key doesn't say so.
const RATES = { bandwidth: new Set(["rate", "fastest", "host_to_device", "device_to_host", "device_to_device", "peer_to_peer", "memset"]), memcpy: new Set(["rate"]) };

// Returns the unit of a document's key. Some keys are a share if the row also has the time, so
// `row` decides.
function unitOf(key, kind = "", row = null) {
  // Both ends of an interval have the unit of the value between them.
  key = key.replace(/_(low|high)$/, "");
  if (RATES[kind]?.has(key)) return "bytes/s";
  if (key === "bytes" || (key.startsWith("bytes_per_") && key !== "bytes_per_s")) return "bytes";
  if (IDS.has(key)) return "id";
  if (SHARES.has(key) || key.startsWith("fraction")) return "share";
  for (const [end, unit] of ENDS) if (key.endsWith(end) || key === end.slice(1)) return unit;
  if (row && `${key}_ns` in row && typeof row[key] === "number" && Math.abs(row[key]) <= 1.0001) return "share";
  return key === "rate" || key === "tflops" ? "TFLOP/s" : "none";
}

// Formats a duration, as minutes and hours if it has many seconds.
function duration(ns) {
  const seconds = ns / 1e9;
  if (Math.abs(seconds) < 99.95) return formatTime(ns);
  const whole = Math.round(seconds), [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  if (h >= 48) return `${Math.floor(h / 24)} d ${h % 24} h`;
  return h ? `${h} h ${m} min` : `${m} min ${s} s`;
}

function plainNumber(value) {
  const size = Math.abs(value);
  if (Number.isInteger(value) || size >= 1000) return formatCount(value);
  if (size === 0) return "0";
  if (size < 0.001) return value.toExponential(1);
  return size >= 100 ? value.toFixed(0) : size >= 1 ? value.toFixed(size >= 10 ? 1 : 2) : value.toFixed(3);
}
function percentText(share) {
  const percent = share * 100, size = Math.abs(percent);
  return size > 0 && size < 0.1 ? `< 0.1 %` : `${percent.toFixed(size >= 99.95 || size === 0 ? 0 : 1)} %`;
}

function shown(value, unit) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  switch (unit) {
    case "ns": return duration(value);
    case "bytes": return formatBytes(value);
    case "bytes/s": return `${formatBytes(value)}/s`;
    case "share": return percentText(value);
    case "per_second": return `${plainNumber(value)}/s`;
    case "watts": return `${plainNumber(value)} W`;
    case "count": return plainNumber(value);
    case "flop/s": return scaled(value, [["FLOP/s", 1], ["kFLOP/s", 1e3], ["MFLOP/s", 1e6], ["GFLOP/s", 1e9], ["TFLOP/s", 1e12], ["PFLOP/s", 1e15]]);
    case "date": return absolute(value);
    case "id": return String(value);
    case "none": case undefined: case null: case "": return plainNumber(value);
    default: return `${plainNumber(value)} ${unit}`;
  }
}
// Returns a value with all of its digits and its unit.
function exact(value, unit) {
  if (typeof value !== "number") return String(value);
  const number = Number.isInteger(value) ? value.toLocaleString("en-US") : String(value);
  if (unit === "share") return `${(value * 100).toPrecision(6).replace(/\.?0+$/, "")} %`;
  if (unit === "id" || unit === "none" || unit === "count" || !unit) return unit === "id" ? String(value) : number;
  return `${number} ${{ per_second: "a second", watts: "W", "flop/s": "FLOP/s", date: "ns since 1970" }[unit] || unit}`;
}
function signed(value, unit) {
  return value > 0 ? `+${shown(value, unit)}` : shown(value, unit);
}

// Returns when something happened: relative to now, and exactly.
function relative(unixNs, now = Date.now()) {
  const seconds = Math.max(0, now / 1000 - unixNs / 1e9);
  if (seconds < 10) return "now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  if (seconds < 86400 * 14) return `${Math.floor(seconds / 86400)} d ago`;
  return absolute(unixNs).slice(0, 10);
}
function absolute(unixNs) {
  const at = new Date(unixNs / 1e6), two = (number) => String(number).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

// Shows an unknown value, with its reason if there is one.
function unknown(why, text = "?") {
  const reason = why ? `unknown: ${why}` : "unknown";
  return element("span", { class: "unknown", title: reason, "aria-label": reason }, text);
}
// Shows a value that stands alone, with the reason next to it if it is unknown.
function known(value, unit, why) {
  return value === null || value === undefined ? unknown(why, "unknown") : element("span", { title: exact(value, unit) }, shown(value, unit));
}

function commandText(command) {
  if (!command || !command.length) return "";
  return command.map((word) => word === "" || /[\s'"\\$`]/.test(word) ? `'${word.replaceAll("'", "'\\''")}'` : word).join(" ");
}
// Returns the command of a run as one text. An archive has only this text, not the arguments.
function commandOf(run) {
  return run.command_text ?? commandText(run.command);
}
// Title of a run: its command, with the program but not its path; otherwise its directory.
function runTitle(run) {
  if (run.command_text) return run.command_text.replace(/^\S*\/(?=[^\s/])/, "");
  const [program, ...rest] = run.command || [];
  return commandText(program ? [program.replace(/^.*\/(?=[^/])/, ""), ...rest] : []) || run.name || `run ${run.id}`;
}

// Turns a key of a document into a heading.
const WORDS_OF = { api: "API", gpu: "GPU", gpus: "GPUs", cpu: "CPU", cuda: "CUDA", nvtx: "NVTX", rss: "RSS", gil: "GIL", io: "I/O", mfu: "MFU", hfu: "HFU", pid: "pid", tid: "tid", sm: "SM", hta: "HTA", gemms: "GEMMs", flops: "FLOPs", tflops: "rate" };
const HEADINGS = { history: "the whole job", seen: "evidence", look_at: "where", try: "what to do", gpu_busy: "GPU busy", flops_per_s: "FLOP/s", mfu: "MFU", hfu: "HFU", time_ns: "time", start_ns: "starts", duration_ns: "lasts", change_share: "change, %", p50_ns: "p50", p95_ns: "p95", p99_ns: "p99", step_ns: "step", wait_ns: "waits" };
function heading(key) {
  if (HEADINGS[key]) return HEADINGS[key];
  const [, stem, end] = /^(.*?)(?:_(low|high))?$/.exec(key);
  const bare = stem.replace(/^ns$/, "").replace(/^error_/, "± ").replace(/_(ns|bytes)$/, "").replace(/_per_s(econd)?$/, " a second").replace(/_watts$/, ", W").replace(/_celsius$/, ", °C").replace(/_mhz$/, ", MHz").replace(/_gb_s$/, ", GB/s");
  const text = bare.split(/[_-]/).map((word) => WORDS_OF[word] || word).join(" ");
  return [text, end].filter(Boolean).join(", ");
}

// Headings of neighbouring keys: if two read alike, their units distinguish them.
function headings(keys) {
  const texts = keys.map(heading), twice = (text) => texts.filter((other) => other === text).length > 1;
  return new Map(keys.map((key, at) => [key, !twice(texts[at]) ? texts[at] : key.endsWith("_ns") ? `${texts[at]} time` : key.endsWith("_bytes") ? `${texts[at]} bytes` : texts[at]]));
}
function titled(key) {
  const text = heading(key);
  return text.charAt(0).toUpperCase() + text.slice(1);
}
