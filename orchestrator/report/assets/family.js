// TFLOP/s against what was chosen, for one Family, of every run and GPU model that has it.

const NEAR = 1.05; // of the best's cost

function spread(row) {
  // The interval is of the cost beside the best, so it is given around the Candidate's own rate.
  const known = row.relative_low !== null && row.relative_high !== null;
  return known ? [row.tflops * (row.relative / row.relative_low - 1), row.tflops * (1 - row.relative / row.relative_high)] : [0, 0];
}

function points(name, rows, title, marker, more = {}) {
  return {
    type: "scatter",
    mode: "markers",
    name,
    x: rows.map(chosenPlace),
    y: rows.map((row) => row.tflops),
    error_y: {
      type: "data",
      symmetric: false,
      array: rows.map((row) => spread(row)[0]),
      arrayminus: rows.map((row) => spread(row)[1]),
      thickness: 1,
      width: 2,
      color: "#8a94a0",
    },
    customdata: rows.map((row) => told(title, facts(row))),
    hoverinfo: "none",
    marker: { size: 9, line: { width: rows.map((row) => (row.tie_group === 1 ? 2 : 0)), color: RING }, ...marker },
    ...more,
  };
}

function byAlignment(rows, title) {
  return ALIGNED.map((look, i) => [look, rows.filter((row) => alignment(row.align_local) === i)])
    .filter(([, own]) => own.length)
    .map(([look, own]) => points(`aligned to ${look.name}`, own, title, { color: look.colour, symbol: look.symbol }));
}

function curve(rows, title, label, colour) {
  const ordered = [...rows].sort((a, b) => chosenPlace(a) - chosenPlace(b));
  const symbols = ordered.map((row) => ALIGNED[alignment(row.align_local)].symbol);
  const line = { mode: "lines+markers", line: { color: colour, width: 1 } };
  return points(plain(label, 48), ordered, `${label}, ${title}`, { color: colour, symbol: symbols }, line);
}

function tieBand(rows, colour) {
  const tied = rows.filter((row) => row.tie_group === 1).map((row) => row.tflops);
  if (!tied.length) return [];
  const [low, high] = [Math.min(...tied), Math.max(...tied)];
  const all = rows.map((row) => row.tflops);
  const least = 0.008 * (Math.max(...all) - Math.min(...all)) || 0.002 * high; // one Candidate alone is a line
  return [{ type: "rect", layer: "below", xref: "paper", x0: 0, x1: 1, y0: low - least, y1: high + least, fillcolor: colour, opacity: 0.16, line: { width: 0 } }];
}

function baselineMarks(rows, label) {
  const base = rows.find((row) => row.baseline && row.rank !== null);
  if (!base) return [[], []];
  const look = { size: 16, symbol: "circle-open", color: RING, line: { width: 2, color: RING } };
  const mark = points("baseline", [base], label, look, { error_y: undefined, showlegend: false });
  const line = { type: "line", layer: "below", xref: "paper", x0: 0, x1: 1, y0: base.tflops, y1: base.tflops, line: { color: "#8a94a0", width: 1, dash: "dot" } };
  return [[mark], [line]];
}

// Where only what is near the best is asked for: the range that holds it.
function near(family, data) {
  if (!document.getElementById("near").checked) return {};
  const rates = family.series.flatMap((series) => {
    const rows = rowsOf(data, series).filter((row) => row.rank !== null);
    const best = bestOf(rows);
    return rows.filter((row) => row.relative <= NEAR || row === best).map((row) => row.tflops);
  });
  const [low, high] = [Math.min(...rates), Math.max(...rates)];
  const margin = Math.max(0.1 * (high - low), 0.005 * high);
  return { range: [low - margin, high + margin] };
}

function drawFamily(place, data, family) {
  const several = family.series.length > 1;
  const traces = [];
  const shapes = [];
  let values = [];
  family.series.forEach((series, i) => {
    const rows = rowsOf(data, series).filter((row) => row.rank !== null);
    const [label, colour] = [series[4], SERIES[i % SERIES.length]];
    const [marks, lines] = baselineMarks(rows, several ? `${label}, ${family.title}` : family.title);
    traces.push(...(several ? [curve(rows, family.title, label, colour)] : byAlignment(rows, family.title)), ...marks);
    shapes.push(...tieBand(rows, several ? colour : BLUE), ...lines);
    values = values.concat(rows.map(chosenPlace));
  });
  if (!values.length) return note(place, "Nothing was measured of this Family.");
  const wide = Math.max(...values) / Math.min(...values) >= 16;
  const distinct = [...new Set(values)];
  const marks = distinct.length <= 10 ? distinct : TICKS;
  const scale = wide ? { type: "log", tickvals: marks, ticktext: marks.map(String) } : { tickformat: "d", nticks: 8 };
  const x = axis(plain(drawnOver(family.axis)), scale);
  const y = axis("TFLOP/s", { nticks: 7, ...near(family, data) });
  const height = several ? 340 + 20 * traces.length : 320;
  return draw(place, traces, layout({ height, shapes, xaxis: x, yaxis: y, showlegend: several }));
}

function note(place, text) {
  place.textContent = text;
  place.classList.add("note");
  place.style.minHeight = "0";
}

const COLUMNS = [
  ["TFLOP/s", (row) => significant(row.tflops)], ["cost over the best's", (row) => row.relative.toFixed(4)], ["95% interval", interval],
  ["vs baseline", versusBaseline], ["tie", (row) => row.tie_group], ["align", (row) => row.align_local],
  ["parameters", (row) => (row.params === null ? "–" : row.params.toLocaleString("en"))], ["Rounds", (row) => row.rounds],
];

// The Family's rows as a table, made when it is opened.
function listFamily(place, data, family) {
  const box = document.createElement("div");
  box.className = "scroll";
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", `Candidates, ${family.title}`);
  for (const series of family.series) {
    const table = document.createElement("table");
    if (family.series.length > 1) table.createCaption().textContent = series[4];
    const head = table.createTHead().insertRow();
    for (const name of [chosenName(family.axis), ...COLUMNS.map(([title]) => title)]) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.className = "n";
      cell.textContent = name;
      head.append(cell);
    }
    const body = table.createTBody();
    for (const row of rowsOf(data, series)) {
      const line = body.insertRow();
      const texts = row.rank === null ? [row.status, plainCut(row.message)] : COLUMNS.map(([, text]) => text(row));
      [chosenText(row.axis, row.value), ...texts].forEach((text, i) => {
        const cell = line.insertCell();
        cell.textContent = text;
        if (row.rank !== null || i < 2) cell.className = "n";
        else cell.colSpan = COLUMNS.length - 1;
      });
    }
    box.append(table);
  }
  place.append(box);
}
