// Rates over FLOPs per byte, under the ceilings of the catalogue.

function roofFacts(data, spots, i) {
  const family = data.families[spots.family[i]];
  const found = [[chosenName(family.axis), chosenText(family.axis, spots.value[i])], ["TFLOP/s", significant(spots.tflops[i])], ["FLOP per byte", significant(spots.intensity[i])]];
  if (spots.share[i] !== null) found.push(["of what the ceilings allow", `${(100 * spots.share[i]).toFixed(0)}%`]);
  return told(`${spots.name}: ${family.title}`, found);
}

function ceilingLine(ceiling, low, high, i) {
  const bandwidth = ceiling.tflops / ceiling.ridge;
  const name = `${ceiling.gpu} ${ceiling.dtypes.join(", ")}: ${ceiling.tflops} TFLOP/s`;
  return {
    type: "scatter", mode: "lines", name: plain(name, 60), customdata: Array(3).fill(told(name, [])),
    x: [low, ceiling.ridge, high], y: [low * bandwidth, ceiling.tflops, ceiling.tflops], hoverinfo: "none",
    line: { color: SERIES[i % SERIES.length], width: 2, dash: i < SERIES.length ? "solid" : "dash" },
  };
}

function drawRoof(place, data) {
  const { spots, ceilings } = data.roof;
  const all = spots.flatMap((each) => each.intensity);
  const low = Math.min(...all, ...ceilings.map((each) => each.ridge)) / 2;
  const high = Math.max(...all, ...ceilings.map((each) => each.ridge)) * 2;
  const lines = ceilings.map((each, i) => ceilingLine(each, low, high, i));
  const traces = spots.map((each, i) => ({
    type: "scatter", mode: "markers", name: plain(each.name, 60), x: each.intensity, y: each.tflops,
    customdata: each.intensity.map((_, at) => roofFacts(data, each, at)), hoverinfo: "none",
    marker: { size: 6, opacity: 0.75, color: SERIES[(i + ceilings.length) % SERIES.length], symbol: ALIGNED[(i + 6) % ALIGNED.length].symbol },
  }));
  const log = (title) => axis(title, { type: "log", tickvals: TICKS, ticktext: TICKS.map(String) });
  return draw(place, [...lines, ...traces], layout({ height: 520 + 18 * (traces.length + lines.length), xaxis: log("FLOP per byte"), yaxis: log("TFLOP/s"), legend: { orientation: "h", y: -0.14, yanchor: "top", x: 0, font: FONT } }));
}

function roofLead(data) {
  const { ceilings, whole, without } = data.roof;
  const which = whole ? "Every Gemm of every Candidate" : "The best and the baseline of each Family";
  const known = ceilings.length ? " The ceilings are the dense peak and the bandwidth of the catalogue; A and B are read and C is written once." : "";
  const unknown = without.length ? ` Not in the catalogue, so without ceilings: ${[...new Set(without)].join(", ")}.` : "";
  return `${which}.${known}${unknown}`;
}
