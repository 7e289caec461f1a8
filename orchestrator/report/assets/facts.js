// All that is known of one Candidate, as names and texts: what hovering shows, and the tables.

const significant = (value, digits = 4) => (Math.abs(value) >= 10 ** (digits - 1) ? value.toFixed(0) : value.toPrecision(digits));
const percent = (value, digits = 1) => `${value >= 0 ? "+" : "−"}${Math.abs(100 * value).toFixed(digits)}%`;

function duration(seconds) {
  if (seconds < 1e-3) return `${significant(seconds * 1e6)} µs`;
  return seconds < 1 ? `${significant(seconds * 1e3)} ms` : `${significant(seconds)} s`;
}

function interval(row) {
  if (row.relative_low === null || row.relative_high === null) return "none";
  if (row.relative_low === 1 && row.relative_high === 1) return "best";
  return `${percent(row.relative_low - 1, 2)} to ${percent(row.relative_high - 1, 2)}`;
}

function versusBaseline(row) {
  if (row.baseline) return "baseline";
  if (row.speedup === null) return "–";
  const tied = row.speedup_low !== null && row.speedup_low <= 1 && row.speedup_high >= 1;
  return `${percent(row.speedup - 1)}${tied ? ", a tie" : ""}`;
}

function flags(row) {
  const found = [row.power_limited ? "at the power limit" : "", row.throttled ? "throttled" : "", row.resolved ? "" : "not resolved"];
  return found.filter(Boolean).join(", ");
}

// What was chosen: of a whole shape its h, d_ff and a, drawn over the one of them that has the most values.
const SHAPE = "shape";
const chosenName = (axis) => (axis === SHAPE ? "h/d_ff/a" : axis);
const chosenText = (axis, value) => (axis === SHAPE ? [Math.floor(value / 1e10), Math.floor(value / 1e4) % 1e6, value % 1e4].join("/") : String(value));
const drawnOver = (axis) => (axis === SHAPE ? "d_ff" : axis);
const chosenPlace = (row) => (row.axis === SHAPE ? row.d_ff : row.value);

function facts(row) {
  const found = [[chosenName(row.axis), chosenText(row.axis, row.value)]];
  const add = (name, value, text) => { if (value !== null && value !== undefined && value !== "") found.push([name, text(value)]); };
  if (row.rank === null) {
    found.push([row.status, row.message]);
    return found;
  }
  add("TFLOP/s", row.tflops, (v) => significant(v));
  for (const part of row.parts.length > 1 ? row.parts : []) found.push([part.part, `${significant(part.tflops)} TFLOP/s, ${(100 * part.share).toFixed(0)}% of the time`]);
  found.push(["cost over the best's", `${row.relative.toFixed(4)} (${interval(row)})`], ["over the baseline", versusBaseline(row)]);
  found.push(["rank", `${row.rank}, tie group ${row.tie_group}`]);
  add("time of a call", row.seconds, duration);
  if (row.axis === SHAPE && row.layers) add(`of all ${row.layers} layers`, row.layers * row.seconds, duration);
  add("p5 to p95", row.p5_s, (v) => `${duration(v)} to ${duration(row.p95_s)}`);
  add("Samples", row.samples, (v) => `${v} in ${row.rounds} Rounds${row.cv === null ? "" : `, cv ${(100 * row.cv).toFixed(1)}%`}`);
  add("alignment", row.align_local, (v) => `${v} of ${row.local_dim ?? "?"}`);
  add("parameters", row.params, (v) => v.toLocaleString("en"));
  for (const name of ["d_ff", "head_dim"]) if (name !== row.axis && row.axis !== "d_ff" && !(row.axis === SHAPE && name === "d_ff")) add(name, row[name], String);
  add("energy of a call", row.energy_j, (v) => `${significant(v, 3)} J`);
  add("SM clock", row.sm_clock_mean_mhz, (v) => `${v.toFixed(0)} MHz, least ${row.sm_clock_min_mhz === null ? "?" : row.sm_clock_min_mhz.toFixed(0)}`);
  add("temperature, power", row.temperature_max_c, (v) => `${v.toFixed(0)} °C, ${row.power_mean_w === null ? "?" : row.power_mean_w.toFixed(0)} W`);
  add("launch", row.launch, String);
  add("state", flags(row), String);
  add("devices", row.devices.length, (v) => (v === 1 ? row.devices[0] : String(v)));
  return found;
}
