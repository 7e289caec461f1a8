// The page: plots are drawn when they come into view, the filter, downloads, paper.

const MOST_DRAWN = 60; // plots of Families kept at a time: each is some hundred elements
const MOST_PRINTED = 120;
const AHEAD = "400px";

function tell(text) {
  const place = document.getElementById("trouble");
  place.hidden = false;
  place.textContent = text;
}

function saved(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

function filterable(cards) {
  const field = document.getElementById("filter");
  const texts = cards.map((card) => `${card.dataset.id} ${card.querySelector("summary").textContent}`.toLowerCase());
  const apply = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    cards.forEach((card, i) => {
      card.hidden = !words.every((word) => texts[i].includes(word));
      shown += Number(!card.hidden);
    });
    document.getElementById("shown").textContent = `${shown} of ${cards.length}`;
    document.getElementById("none").hidden = shown > 0 || cards.length === 0;
  };
  field.addEventListener("input", apply);
  apply();
}

// checkVisibility() would lay out each closed card: seconds with a thousand of them.
function onPaper(place) {
  const card = place.closest(".family");
  return !place.closest("[hidden]") && (card === null || card.open);
}

function lazily(draws) {
  const drawn = [];
  const ready = (place) => {
    if (place.dataset.drawn) return;
    place.dataset.drawn = "yes";
    draws(place);
    if (!place.dataset.draw) drawn.push(place);
    while (drawn.length > MOST_DRAWN) {
      const old = drawn.shift();
      Plotly.purge(old);
      delete old.dataset.drawn;
      watch.unobserve(old);
      watch.observe(old); // tells again when it comes back
    }
  };
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) ready(entry.target);
  }, { rootMargin: AHEAD });
  for (const place of document.querySelectorAll(".plot")) watch.observe(place);
  return ready;
}

async function start() {
  const data = JSON.parse(await unpacked("data"));
  const cards = [...document.querySelectorAll(".family")];
  filterable(cards);
  for (const button of document.querySelectorAll(".download")) {
    const run = data.runs[Number(button.dataset.run)];
    button.addEventListener("click", () => saved(`${run.name.replace(/[^\w.+-]+/g, "-")}.csv`, csv(run.ranking)));
  }
  document.getElementById("open").addEventListener("click", () => cards.forEach((card) => { if (!card.hidden) card.open = true; }));
  document.getElementById("close").addEventListener("click", () => cards.forEach((card) => { card.open = false; }));
  for (const card of cards) {
    const rows = card.querySelector(".rows");
    rows.addEventListener("toggle", () => {
      if (rows.open && !rows.querySelector("table")) listFamily(rows, data, data.families[Number(card.dataset.i)]);
    });
  }

  const library = document.createElement("script");
  library.textContent = await unpacked("plotly");
  document.head.append(library);

  drawKey(document.getElementById("key"));
  document.getElementById("near").addEventListener("change", () => {
    for (const place of document.querySelectorAll(".family .plot[data-drawn]")) draws(place);
  });
  const map = startMap(data, () => drawMaps());
  const wanted = { "map-tflops": RATE, "map-gain": GAIN };
  const drawMap = (place) => {
    const found = map(wanted[place.dataset.draw]);
    place.closest("figure").hidden = found === null;
    if (wanted[place.dataset.draw] === RATE) document.getElementById("map-none").hidden = found !== null;
    if (found !== null) draw(place, ...found);
  };
  const drawMaps = () => document.querySelectorAll('[data-draw^="map-"]').forEach(drawMap);
  const others = { roof: drawRoof, layers: drawLayers, drift: drawDrift };
  const draws = (place) => {
    const { draw: name } = place.dataset;
    if (!name) drawFamily(place, data, data.families[Number(place.closest(".family").dataset.i)]);
    else if (name in wanted) drawMap(place);
    else others[name](place, data);
  };
  const there = { map: map !== null, roof: data.roof.spots.length > 0 };
  for (const [id, known] of Object.entries(there)) {
    document.getElementById(id).hidden = !known;
    document.querySelector(`[data-needs="${id}"]`).hidden = !known;
  }
  document.getElementById("roof-lead").textContent = roofLead(data);
  const ready = lazily(draws);
  for (const event of ["scroll", "beforeprint"]) window.addEventListener(event, hideTip, { capture: true, passive: true });
  window.addEventListener("beforeprint", () => {
    [...document.querySelectorAll(".plot")].filter(onPaper).slice(0, MOST_PRINTED).forEach(ready);
  });
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  tell(`The plots cannot be drawn: ${error.message}. They need a browser of 2023 or later.`);
  throw error;
});
