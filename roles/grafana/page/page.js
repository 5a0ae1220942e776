"use strict";
// Draws the graphs. Everything else on the page is there without it.
const COLOURS = [
  "#73bf69", "#f2cc0c", "#5794f2", "#ff780a", "#f2495c", "#b877d9", "#37872d", "#8ab8ff", "#c4162a", "#8f3bb8",
  "#56a64b", "#fade2a", "#3274d9", "#ffb357", "#ff7383", "#ca95e5",
];
const colour = (number) => COLOURS[number % COLOURS.length];
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const written = (data, value) => {
  if (value == null) return "–";
  return `${Number((value / data.divisor).toPrecision(3))}${data.suffix}`;
};

// Each line on top of those before it; where one has no value it adds nothing.
const piled = (values) => {
  const sums = values.length ? values[0].map(() => 0) : [];
  return values.map((line) => line.map((value, at) => (value == null ? null : (sums[at] += value))));
};

const tip = (data) => {
  let box;
  return {
    hooks: {
      init: (plot) => {
        box = document.createElement("div");
        box.className = "tip";
        box.hidden = true;
        plot.over.append(box);
        plot.over.addEventListener("mouseleave", () => { box.hidden = true; });
      },
      setCursor: (plot) => {
        const at = plot.cursor.idx;
        const said = data.names
          .map((name, line) => [name, data.values[line][at]])
          .filter(([, value]) => value != null)
          .sort((one, other) => other[1] - one[1])
          .slice(0, 12);
        box.hidden = at == null || plot.cursor.left < 0 || !said.length;
        if (box.hidden) return;
        const time = new Date(data.times[at] * 1000).toLocaleString();
        box.textContent = [time, ...said.map(([name, value]) => `${written(data, value)}  ${name}`)].join("\n");
        const right = plot.cursor.left > plot.over.clientWidth / 2;
        box.style.left = right ? "" : `${plot.cursor.left + 12}px`;
        box.style.right = right ? `${plot.over.clientWidth - plot.cursor.left + 12}px` : "";
      },
    },
  };
};

const draw = (panel) => {
  const place = panel.querySelector(".chart");
  const data = JSON.parse(panel.querySelector("script").textContent);
  const lines = data.stacked ? piled(data.values) : data.values;
  for (const mark of panel.querySelectorAll("[data-line]")) mark.style.background = colour(mark.dataset.line);
  const axis = { stroke: style("--quiet"), grid: { stroke: style("--edge"), width: 1 }, ticks: { show: false } };
  const options = {
    width: place.clientWidth,
    height: place.clientHeight,
    padding: [10, 36, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
    scales: {
      y: { range: (plot, least, most) => [Math.min(0, least ?? 0), data.top ?? ((most > 0 ? most : data.divisor) * 1.05)] },
    },
    axes: [
      { ...axis, gap: 8, size: 56, values: [
        [86400, "{YYYY}-{MM}-{DD}", null, null, null, null, null, null, 1],
        [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, null, null, null, null, 1],
        [1, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, null, null, null, null, 1],
      ] },
      {
        ...axis,
        size: 72,
        space: 36,
        splits: (plot, index, least, most) => {
          const wish = (most - least) / data.divisor / 4;
          const power = 10 ** Math.floor(Math.log10(wish));
          const step = ([1, 2, 2.5, 5].find((factor) => factor * power >= wish) ?? 10) * power * data.divisor;
          const found = [];
          for (let at = Math.ceil(least / step); at * step <= most * 1.0001; at++) found.push(at * step);
          return found;
        },
        values: (plot, splits) => splits.map((value) => written(data, value)),
      },
    ],
    series: [{}, ...data.names.map((name, number) => ({
      label: name,
      stroke: colour(number),
      width: 1.5,
      fill: data.stacked ? `${colour(number)}99` : lines.length === 1 ? `${colour(number)}22` : undefined,
      points: { show: false },
    }))],
    bands: data.stacked ? lines.slice(1).map((line, number) => ({ series: [number + 2, number + 1] })) : [],
    plugins: [tip(data)],
  };
  place.replaceChildren();
  return new uPlot(options, [data.times, ...lines], place);
};

const panels = [...document.querySelectorAll(".timeseries")];
panels.forEach(draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => panels.forEach(draw));
let later;
addEventListener("resize", () => {
  clearTimeout(later);
  later = setTimeout(() => panels.forEach(draw), 150);
});
