// Numbers as people read them.

const kBinary = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value) {
  let unit = 0;
  while (value >= 1024 && unit < kBinary.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${digits(value, unit === 0)} ${kBinary[unit]}`;
}

export const perSecond = (value) =>
  `${value >= 10 ? count(value) : Number(value.toFixed(value < 1 ? 2 : 1))}/s`;

export const rate = (value) => `${bytes(value)}/s`;

function digits(value, whole = false) {
  if (whole || value === 0) return String(Math.round(value));
  return value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0);
}

export const count = (value) => Math.round(value).toLocaleString("en");

// "1 segment", "2 segments"
export const plural = (value, word) => `${count(value)} ${word}${value === 1 ? "" : "s"}`;

export function percent(share) {
  const value = share * 100;
  return `${value.toFixed(value > 0 && value < 10 ? 1 : 0)}%`;
}

// `mass`: the share of the score mass that each layer keeps; empty if there are no scores.
export function keptMass(mass) {
  if (mass.length === 0) return "";
  const lowest = mass.indexOf(Math.min(...mass));
  const mean = mass.reduce((sum, share) => sum + share, 0) / mass.length;
  return `Score mass kept: ${percent(mean)} on average, ${percent(mass[lowest])} in layer `
    + `${lowest}.`;
}

const kTimes = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

export function duration(seconds) {
  const first = kTimes.findIndex(([size]) => seconds >= size);
  if (first < 0) return "0 s";
  const [size, name] = kTimes[first];
  const rest = kTimes[first + 1];
  const more = rest === undefined ? 0 : Math.floor((seconds % size) / rest[0]);
  return `${Math.floor(seconds / size)} ${name}${more > 0 ? ` ${more} ${rest[1]}` : ""}`;
}

// Of a measurement, which may be short.
export const seconds = (value) =>
  (value < 60 ? `${Number(value.toPrecision(3))} s` : duration(value));

export function exactDuration(seconds) {
  const [size, name] = kTimes.find(([each]) => seconds % each === 0);
  return `${seconds / size} ${name}`;
}

// The seconds, rounded up, that a text such as "12 h" means; empty means 0. Throws if it means
// nothing.
export function parseDuration(text) {
  const found = /^([0-9]*\.?[0-9]+) *(d|h|min|s)$/i.exec(text.trim() || "0 s");
  if (found === null) throw new Error(`'${text}' is no time: write 12 h, for example.`);
  const [size] = kTimes.find(([, name]) => name === found[2].toLowerCase());
  return Math.ceil(Number(found[1]) * size);
}

// `coarse`: only the largest unit.
export function ago(unixMs, coarse = false) {
  if (unixMs === 0) return "never";
  const text = duration((Date.now() - unixMs) / 1000);
  return `${coarse ? text.split(" ").slice(0, 2).join(" ") : text} ago`;
}

export function time(unixMs) {
  return new Date(unixMs).toLocaleString("sv");
}

// A budget in the words that the service also accepts; `none` if there is none.
export function budget(value, none = "") {
  if (value === null || value === undefined) return none;
  switch (value.kind) {
    case "ratio": return `${Number((value.value * 100).toFixed(4))}%`;
    case "entries": return `${value.value} entries`;
    case "bytes": return exactBytes(value.value);
    case "loss":
      return `loss ${value.value}`;
    case "byte_share": return `${Number((value.value * 100).toFixed(4))}% bytes`;
    default: return "all";
  }
}

// The bytes that a text such as "500 GiB" means; empty means none. Throws if it means nothing.
export function parseBytes(text) {
  const found = /^([0-9]*\.?[0-9]+) *([KMGTP]iB|B)?$/i.exec(text.trim() || "0");
  if (found === null) throw new Error(`'${text}' is no size: write 500 GiB, for example.`);
  const unit = kBinary.findIndex((name) => name.toLowerCase() === (found[2] ?? "B").toLowerCase());
  return Math.round(Number(found[1]) * 1024 ** unit);
}

export function exactBytes(value) {
  let unit = 0;
  while (unit < 3 && value >= 1024 && value % 1024 === 0) {
    value /= 1024;
    unit += 1;
  }
  return `${value} ${kBinary[unit]}`;
}

// A recipe, which the API may give as JSON.
export function recipe(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

// The recipe of a segment by its name, with the encoding of its rows.
export function recipeName(row) {
  const name = row.preset || recipe(row.recipe);
  return row.encoding === "raw" ? name : `${name} (${row.encoding})`;
}

// The time of today, or the date too.
export function clock(unixMs) {
  const text = time(unixMs);
  return text.slice(0, 10) === time(Date.now()).slice(0, 10) ? text.slice(11) : text;
}
