// The best rate and the gain of each Family over two of the dimensions in which the Families differ.

const CROSSED = ["h", "tp", "batch", "seq", "dtype", "d_ff", "a", "kv", "head_dim", "v", "experts", "topk", "ep", "layers", "passes", "role", "run"];
const FIRST = [["h", "tp"], ["dtype", "tp"], ["batch", "tp"], ["h", "batch"]];

function heatRecords(data) {
  const read = data.runs.map(({ ranking }) => Object.fromEntries([...CROSSED, "axis"].filter((name) => name in ranking).map((name) => [name, column(ranking, name)])));
  return data.families.flatMap((family) => family.series.map((series) => {
    const [run, , start, count, label] = series;
    const { ranking } = data.runs[run];
    const place = bestPlace(ranking, series);
    const dimensions = { run: label };
    for (const name of CROSSED) {
      const at = read[run][name];
      // A dimension that is chosen, or follows from what is, belongs to the Candidate and not to the Family.
      let same = at !== undefined && name !== family.axis;
      for (let i = start + 1; same && i < start + count; i += 1) same = at(i) === at(start);
      if (same) dimensions[name] = at(start);
    }
    return { best: place < 0 ? null : rowAt(ranking, place), dimensions, title: family.title, label };
  })).filter((each) => each.best !== null);
}

function heatChoices(records) {
  const values = {};
  for (const name of CROSSED) {
    const found = [...new Set(records.map((each) => each.dimensions[name]))].filter((value) => value !== null && value !== undefined);
    if (found.length > 1) values[name] = found.every((v) => typeof v === "number") ? found.sort((a, b) => a - b) : found.sort();
  }
  return values;
}

function choose(place, label, options, chosen, changed) {
  const box = document.createElement("label");
  const select = document.createElement("select");
  for (const [value, text] of options) select.add(new Option(text, value, false, value === chosen));
  box.append(`${label} `, select);
  select.addEventListener("change", changed);
  place.append(box);
  return select;
}

function startMap(data, ready) {
  const records = heatRecords(data);
  const values = heatChoices(records);
  const names = Object.keys(values);
  if (!names.length) return null;
  const [firstX, firstY] = FIRST.find((pair) => pair.every((name) => names.includes(name))) ?? [names[0], names[1] ?? names[0]];
  const place = document.getElementById("map-tools");
  const redraw = () => ready();
  const options = names.map((name) => [name, name]);
  const x = choose(place, "across", options, firstX, () => { filters(); redraw(); });
  const y = choose(place, "down", options, firstY, () => { filters(); redraw(); });
  const box = document.createElement("span");
  box.className = "tools";
  place.append(box);
  let chosen = {};
  // At first the values that most Families have together, so that there is something to see.
  function common(others) {
    const groups = new Map();
    for (const { dimensions } of records) {
      const key = JSON.stringify(others.map((name) => dimensions[name] ?? null));
      groups.set(key, (groups.get(key) ?? 0) + 1);
    }
    const most = Math.max(...groups.values());
    const found = JSON.parse([...groups].find(([, count]) => count === most)[0]);
    return Object.fromEntries(others.map((name, i) => [name, found[i] === null ? "" : String(found[i])]));
  }
  function filters() {
    box.replaceChildren();
    const old = Object.fromEntries(Object.entries(chosen).map(([name, select]) => [name, select.value]));
    chosen = {};
    const others = names.filter((each) => each !== x.value && each !== y.value);
    const first = common(others);
    for (const name of others) {
      const listed = [["", "any"], ...values[name].map((value) => [String(value), String(value)])];
      chosen[name] = choose(box, name, listed, old[name] ?? first[name], redraw);
    }
  }
  filters();
  return (wanted) => {
    const kept = records.filter((each) => Object.entries(chosen).every(([name, select]) => select.value === "" || String(each.dimensions[name]) === select.value));
    return heatmap(kept, x.value, y.value, values, wanted);
  };
}

const RATE = { value: (each) => each.best.tflops, text: (v) => significant(v, 3), colours: "Viridis" };
const GAIN = { value: (each) => (each.best.speedup === null ? null : 100 * (each.best.speedup - 1)), text: (v) => `${v >= 0 ? "+" : "−"}${Math.abs(v).toFixed(Math.abs(v) < 10 ? 1 : 0)}%`, colours: "Cividis" };

// A name of several parts takes several lines, so that it leaves room for the cells.
const tick = (value) => String(value).split(", ").map((part) => plain(part, 22)).join("<br>");

// Traces and layout; of several Families in a cell the one with the highest figure.
function heatmap(records, nameX, nameY, values, wanted) {
  const key = (each) => JSON.stringify([each.dimensions[nameX], each.dimensions[nameY]]);
  const best = new Map();
  const counts = new Map();
  for (const each of records) {
    const value = wanted.value(each);
    if (value === null) continue;
    counts.set(key(each), (counts.get(key(each)) ?? 0) + 1);
    if (!best.has(key(each)) || value > wanted.value(best.get(key(each)))) best.set(key(each), each);
  }
  if (!best.size) return null;
  const used = (name) => values[name].filter((value) => records.some((each) => each.dimensions[name] === value));
  const [across, down] = [used(nameX), nameX === nameY ? [null] : used(nameY)];
  const at = (x, y) => best.get(JSON.stringify([x, nameX === nameY ? x : y]));
  const grid = (read, none = "") => down.map((y) => across.map((x) => (at(x, y) ? read(at(x, y)) : none)));
  const small = across.length * down.length <= 150 && across.length <= 12;
  const tell = (each) => {
    const several = counts.get(key(each)) > 1 ? [["the highest of", `${counts.get(key(each))} Families`]] : [];
    return told(`${each.label}, ${each.title}`, [...facts(each.best), ...several]);
  };
  const trace = {
    type: "heatmap",
    x: across.map(tick),
    y: down.map((value) => (value === null ? "" : tick(value))),
    z: grid(wanted.value, null),
    text: grid((each) => wanted.text(wanted.value(each))),
    texttemplate: small ? "%{text}" : "",
    customdata: grid(tell),
    hoverinfo: "none",
    hoverongaps: false,
    colorscale: wanted.colours,
    xgap: 2,
    ygap: 2,
    colorbar: { thickness: 12, outlinewidth: 0, tickfont: FONT },
  };
  const category = (name) => axis(plain(name), { type: "category", showgrid: false });
  return [[trace], layout({ height: Math.min(700, Math.max(180, 130 + 44 * down.length)), xaxis: category(nameX), yaxis: category(nameX === nameY ? "" : nameY) })];
}
