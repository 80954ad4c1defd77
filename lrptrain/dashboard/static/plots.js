// Plots of the samples beside the gallery: each shows what the others' filters leave, and is a filter itself.

const PLOTS = {
  scores: { text: "Histogram", draw: histogramPlot },
  confusion: { text: "Confusion matrix", draw: confusionPlot },
};

// Where they do not fit beside the gallery, none is open until it is asked for.
const WIDE = window.matchMedia("(min-width: 1100px)"); // as in explore.css

function openPlots() {
  const names = address.plots || (WIDE.matches ? "scores confusion" : "");
  return names.split(" ").filter((name) => Object.hasOwn(PLOTS, name));
}

function plotsOf(run, table) {
  const place = h("div", { className: "plotted", id: "plots" });
  const draw = () => {
    const open = openPlots();
    const toggles = Object.entries(PLOTS).map(([name, { text }]) => h("button", { type: "button", id: `plot-${name}`, className: "toggle",
      ariaPressed: String(open.includes(name)), onclick: () => go({ plots: Object.keys(PLOTS).filter((own) => open.includes(own) !== (own === name)).join(" ") || "none" }, true) }, text));
    const panels = open.map((name) => h("section", { className: `panel plot plot-of-${name}`, ariaLabel: PLOTS[name].text }, PLOTS[name].draw(run, table)));
    redraw(place, h("div", { className: "controls toggles", role: "group", ariaLabel: "Plots" }, toggles), h("div", { className: "plot-panels" }, panels));
  };
  draw();
  plotsOf.draw = () => place.isConnected && draw();
  return place;
}
plotsOf.draw = () => {};

// With new filters the gallery has them drawn.
watch(["plots", "target"], () => plotsOf.draw());
