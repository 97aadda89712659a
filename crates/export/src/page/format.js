// Formats numbers for people. Three digits suffice for comparing.

function digits(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 || size === 0 ? 0 : size >= 10 ? 1 : 2);
}

function scaled(value, units) {
  let [name, size] = units[0];
  for (const unit of units) if (Math.abs(value) >= unit[1] * 0.9995) [name, size] = unit;
  return `${digits(value / size)} ${name}`;
}

const TIME_UNITS = [["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9]];
const HERTZ_UNITS = [["Hz", 1], ["kHz", 1e3], ["MHz", 1e6], ["GHz", 1e9]];
const BYTE_UNITS = [["B", 1], ["KiB", 1024], ["MiB", 1048576], ["GiB", 1073741824], ["TiB", 1099511627776]];

function formatTime(ns) {
  return Math.abs(ns) < 999.5 ? `${Math.round(ns)} ns` : scaled(ns, TIME_UNITS);
}
function formatBytes(bytes) {
  return Math.abs(bytes) < 1023.5 ? `${Math.round(bytes)} B` : scaled(bytes, BYTE_UNITS);
}
function formatCount(count) {
  return Math.round(count).toLocaleString("en-US");
}
function formatValue(value, unit) {
  const units = { ns: formatTime, bytes: formatBytes, share: (share) => formatShare(share, 1), Hz: (hertz) => scaled(hertz, HERTZ_UNITS), W: (watts) => `${digits(watts)} W`, J: (joules) => `${digits(joules)} J`, "B/s": (rate) => `${formatBytes(rate)}/s`, "°C": (degrees) => `${Math.round(degrees)} °C` };
  return (units[unit] || formatCount)(value);
}
function formatShare(part, whole) {
  if (!(whole > 0)) return "–";
  const percent = 100 * part / whole;
  if (percent > 0 && percent < 0.1) return "< 0.1 %";
  return `${percent.toFixed(percent >= 99.95 || percent === 0 ? 0 : 1)} %`;
}
