// What the devices of a run did over time: rounds and canaries, clocks, power and temperature.

const PANELS = [["y", "level, %"], ["y2", "SM clock, MHz"], ["y3", "power, W"], ["y4", "°C"]];
const GAP = 0.06;

// Short runs are told in seconds.
function clock(courses) {
  const last = Math.max(0, ...courses.flatMap((each) => [...each.minutes, ...each.round_minutes, ...each.canary_minutes]));
  return last < 3 ? { unit: "s", title: "seconds since the first Shard", factor: 60 } : { unit: "min", title: "minutes since the first Shard", factor: 1 };
}

function courseTraces(course, i, several, time) {
  const colour = SERIES[i % SERIES.length];
  const name = plain(course.uuid, 24);
  const shown = (kind) => (several ? `${name} ${kind}` : kind);
  const base = { type: "scatter", legendgroup: name, showlegend: false };
  const at = (minutes) => minutes.map((value) => value * time.factor);
  const shards = (y, unit, axisName, more) => ({
    ...base, mode: "lines+markers", x: at(course.minutes), y, yaxis: axisName, line: { color: colour, width: 1.5 }, marker: { size: 5, color: colour },
    customdata: course.families.map((family, place) => told(course.uuid, [
      ["Family", family], [unit, y[place] === null ? "?" : significant(y[place])], [time.unit, at(course.minutes)[place].toFixed(1)],
    ])),
    hoverinfo: "none", ...more,
  });
  const level = (x, y, kind, symbol, mode) => ({
    ...base, mode, x, y, showlegend: x.length > 0, name: shown(kind), line: { color: colour, width: 1 }, marker: { size: symbol === "diamond" ? 8 : 4, color: colour, symbol },
    customdata: y.map((value, place) => told(course.uuid, [[kind, percent(value / 100, 2)], [time.unit, x[place].toFixed(1)]])),
    hoverinfo: "none",
  });
  return [
    level(at(course.round_minutes), course.level, "rounds", "circle", "markers"),
    level(at(course.canary_minutes), course.canary_level, "canaries", "diamond", "lines+markers"),
    shards(course.clock_mean, "MHz, mean", "y2", { showlegend: true, name: shown("mean clock") }),
    shards(course.clock_min, "MHz, least", "y2", { mode: "lines", line: { color: colour, width: 1, dash: "dot" }, showlegend: true, name: shown("least clock") }),
    shards(course.power, "W", "y3", {}),
    shards(course.temperature, "°C", "y4", {}),
  ];
}

function drawDrift(place, data) {
  const courses = data.drift[Number(place.dataset.run)];
  if (!courses.length || !courses.some((each) => each.minutes.length || each.canary_minutes.length)) return note(place, "The Shards carry no times.");
  const time = clock(courses);
  const traces = courses.flatMap((course, i) => courseTraces(course, i, courses.length > 1, time));
  // What the Shards do not carry has no panel.
  const known = (trace) => trace.y.some((value) => value !== null);
  const panels = PANELS.filter(([name]) => traces.some((trace) => (trace.yaxis ?? "y") === name && known(trace)));
  if (!panels.length) return note(place, "The Shards carry no clocks, power or temperature.");
  const axes = {};
  panels.forEach(([name, title], i) => {
    const height = (1 + GAP) / panels.length;
    const top = 1 - i * height;
    axes[name.replace("y", "yaxis")] = axis(title, { domain: [Math.max(0, top - height + GAP), top], nticks: 5, anchor: "x" });
  });
  const legend = { orientation: "h", y: -0.1, yanchor: "top", x: 0, font: FONT };
  const shown = traces.filter((trace) => panels.some(([name]) => name === (trace.yaxis ?? "y")) && known(trace));
  const x = axis(time.title, { anchor: panels.at(-1)[0] });
  return draw(place, shown, layout({ height: 120 + 140 * panels.length + 22 * courses.length, xaxis: x, legend, ...axes }));
}
