// How plots look. Text and grid take their colours from the style sheet, which knows light, dark and paper.

const FONT = { family: 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif', size: 12, color: "#4d5866" };
const CONFIG = {
  displaylogo: false, responsive: true, displayModeBar: "hover", modeBarButtons: [["toImage"], ["zoom2d", "pan2d", "resetScale2d"]],
};
const SERIES = ["#2f7fd1", "#d9713c", "#3f9b6c", "#a768c9", "#c2a02c", "#d05383", "#4aa3ad", "#8c8f3c"];
const BLUE = "#2f7fd1";

// By the largest power of two: rows that wide loads cannot read are warm, the others cool. path: the symbol in the key.
const ALIGNED = [
  { least: 1, name: "1", colour: "#d64550", symbol: "x", path: "M3 1l3 3 3-3 2 2-3 3 3 3-2 2-3-3-3 3-2-2 3-3-3-3z" },
  { least: 2, name: "2", colour: "#e2793d", symbol: "triangle-down", path: "M0 2h12l-6 9z" },
  { least: 4, name: "4", colour: "#c99a2e", symbol: "triangle-up", path: "M0 10h12l-6-9z" },
  { least: 8, name: "8", colour: "#3f9b6c", symbol: "square", path: "M1 1h10v10h-10z" },
  { least: 16, name: "16", colour: "#2f9fb0", symbol: "diamond", path: "M6 0l6 6-6 6-6-6z" },
  { least: 32, name: "32", colour: "#3b82d6", symbol: "pentagon", path: "M6 0l6 4.5-2.3 7h-7.4l-2.3-7z" },
  { least: 64, name: "64 and more", colour: "#8465d8", symbol: "circle", path: "M6 1a5 5 0 1 0 .01 0z" },
];
const RING = "#78838f";
const MARKS = [
  { name: "tie group 1", colour: RING, path: "M0 0h12v12h-12zM2.5 2.5v7h7v-7z" },
  { name: "baseline", colour: RING, path: "M6 0a6 6 0 1 0 .01 0zM6 2a4 4 0 1 1 -.01 0z" },
];

// Ticks of a logarithmic axis.
const TICKS = [-3, -2, -1, 0, 1, 2, 3, 4, 5].flatMap((power) => [1, 2, 5].map((digit) => Number(`${digit}e${power}`)));

function alignment(value) {
  return ALIGNED.findLastIndex((each) => value >= each.least);
}

// plotly reads some HTML in texts: names and messages must stay what they are.
function plain(text, limit = 120) {
  const line = String(text).replace(/\s+/g, " ");
  const cut = line.length > limit ? `${line.slice(0, limit - 1)}…` : line;
  return cut.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function axis(title, more = {}) {
  return { title: { text: title, standoff: 8 }, automargin: true, zeroline: false, gridcolor: "#8884", tickfont: FONT, ...more };
}

function layout(more = {}) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: FONT,
    margin: { l: 56, r: 12, t: 30, b: 44 },
    hovermode: "closest",
    modebar: { bgcolor: "rgba(0,0,0,0)", color: "#7a8592", activecolor: "#2f7fd1" },
    legend: { orientation: "h", y: -0.18, yanchor: "top", x: 0, font: FONT },
    ...more,
  };
}

// Draw, and remember the shape, so that paper can scale what was drawn for the screen.
function draw(place, traces, wanted) {
  const drawn = Plotly.newPlot(place, traces, wanted, CONFIG);
  for (const event of ["plotly_afterplot", "plotly_hover", "plotly_unhover"]) place.removeAllListeners(event); // of an earlier drawing
  place.on("plotly_afterplot", () => scalable(place));
  tellOf(place);
  scalable(place);
  return drawn;
}

function scalable(place) {
  const { width, height } = place._fullLayout;
  place.style.setProperty("--shape", `${width} / ${height}`);
  for (const svg of place.querySelectorAll(".main-svg")) svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
}

function svg(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// One key for the plots of all Families.
function drawKey(place) {
  for (const { name, colour, path } of [...ALIGNED, ...MARKS]) {
    const item = document.createElement("li");
    const picture = svg("svg", { viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true" });
    picture.append(svg("path", { d: path, fill: colour, "fill-rule": "evenodd" }));
    item.append(picture, name);
    place.append(item);
  }
}
