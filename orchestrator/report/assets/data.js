// The page's data: compressed in the page, read once, and looked up by column.

async function unpacked(id) {
  const letters = document.getElementById(id).textContent.trim();
  const bytes = Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

function column(ranking, name) {
  const found = ranking[name];
  return Array.isArray(found) ? (i) => found[i] : () => found.all;
}

function length(ranking) {
  const found = ranking.family_id;
  return Array.isArray(found) ? found.length : found.count;
}

// One row of a ranking as an object.
function rowAt(ranking, i) {
  const row = {};
  for (const name in ranking) row[name] = Array.isArray(ranking[name]) ? ranking[name][i] : ranking[name].all;
  return row;
}

function rowsOf(data, series) {
  const [run, , start, count] = series;
  return Array.from({ length: count }, (_, i) => rowAt(data.runs[run].ranking, start + i));
}

// The place of the Candidate that costs least per FLOP in a series; -1 where none was measured.
function bestPlace(ranking, [, , start, count]) {
  const relative = column(ranking, "relative");
  let best = -1;
  for (let i = start; i < start + count; i += 1) {
    if (relative(i) !== null && (best < 0 || relative(i) < relative(best))) best = i;
  }
  return best;
}

// The Candidate that costs least per FLOP; nothing where none was measured.
function bestOf(rows) {
  const ranked = rows.filter((row) => row.rank !== null);
  return ranked.reduce((best, row) => (best === null || row.relative < best.relative ? row : best), null);
}

function csvCell(value) {
  if (value === null || value === undefined) return "";
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

function csv(ranking) {
  const names = Object.keys(ranking);
  const columns = names.map((name) => column(ranking, name));
  const lines = [names.join(",")];
  for (let i = 0; i < length(ranking); i += 1) lines.push(columns.map((at) => csvCell(at(i))).join(","));
  return `${lines.join("\n")}\n`;
}
