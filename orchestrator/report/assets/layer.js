// Shares of a layer's components, one bar a layer and variant.

const KINDS = {
  gemm: ["#1f5f9e", "#2f7fd1", "#5a9fe0", "#88bdec", "#164a7c", "#3f8fbd"],
  attention: ["#d9713c", "#e79a6f"],
  other: ["#6f7a86", "#8c96a1", "#a9b1ba", "#59636e", "#c3c9cf"],
};

function drawLayers(place, data) {
  const bars = data.layers;
  const names = [...new Set(bars.flatMap((bar) => bar.components.map((each) => each.name)))];
  const seen = {};
  const traces = names.map((name) => {
    const parts = bars.map((bar) => bar.components.find((each) => each.name === name) ?? null);
    const kind = parts.find((each) => each !== null).kind;
    const colours = KINDS[kind] ?? KINDS.other;
    seen[kind] = (seen[kind] ?? -1) + 1;
    return {
      type: "bar", orientation: "h", name: plain(name, 40), y: bars.map((bar, i) => `${i + 1}. ${plain(bar.title, 70)}`),
      x: parts.map((each) => (each === null ? 0 : 100 * each.share)), marker: { color: colours[seen[kind] % colours.length] },
      customdata: parts.map((each, i) => (each === null ? "" : told(bars[i].title, [
        [`${name} (${kind})`, `${(100 * each.share).toFixed(1)}%`], ["time", `${each.times} × ${duration(each.seconds)}`], ["GPU", bars[i].gpu],
      ]))),
      hoverinfo: "none",
    };
  });
  const narrow = place.clientWidth < 600;
  const y = axis("", { autorange: "reversed", showgrid: false, ...(narrow ? { side: "left", ticklabelposition: "inside" } : {}) });
  return draw(place, traces, layout({
    barmode: "stack", height: 150 + 46 * bars.length + 22 * Math.ceil(names.length / (narrow ? 2 : 7)), bargap: 0.35,
    xaxis: axis("% of the latency", { range: [0, 100] }), yaxis: y, legend: { orientation: "h", y: -0.18, yanchor: "top", x: 0, traceorder: "normal", font: FONT },
  }));
}
