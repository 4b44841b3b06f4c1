"use strict";
// The page is whole without this file: it draws the explorer and turns assumptions into checkboxes.
(function () {
  const NS = "http://www.w3.org/2000/svg";
  document.documentElement.classList.add("scripted");

  function element(parent, name, attributes, text) {
    const made = document.createElementNS(NS, name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    parent.appendChild(made);
    return made;
  }

  function softmax(scores) {
    const top = Math.max(...scores);
    const raised = scores.map((score) => Math.exp(score - top));
    const sum = raised.reduce((a, b) => a + b, 0);
    return raised.map((value) => value / sum);
  }

  function explorer() {
    const data = JSON.parse(document.getElementById("explorer-data").textContent);
    const width = document.getElementById("explore-width");
    const length = document.getElementById("explore-length");
    const numbers = document.getElementById("explore-numbers");
    const box = { left: 38, right: 292, top: 10, bottom: 172 };
    const steps = Math.log2(data.widths[data.widths.length - 1]);
    const x = (d) => box.left + ((box.right - box.left) * Math.log2(d)) / steps;
    const y = (part) => box.bottom - (box.bottom - box.top) * part;
    const highest = { entropy: (n) => Math.log(n), weight: () => 1, trace: () => 1 };

    function frame(svg, most, ticks) {
      for (let i = 0; i <= 4; i++) {
        element(svg, "line", { class: "grid", x1: box.left, x2: box.right, y1: y(i / 4), y2: y(i / 4) });
        const label = ((most * i) / 4).toFixed(2);
        element(svg, "text", { x: box.left - 5, y: y(i / 4) + 4, "text-anchor": "end" }, label);
      }
      for (const [at, text] of ticks) element(svg, "text", { x: at, y: box.bottom + 17, "text-anchor": "middle" }, text);
    }

    function drawCurves(key, at, n, chosen) {
      const svg = document.getElementById("explore-" + key);
      svg.querySelectorAll(":scope > :not(title):not(desc)").forEach((old) => old.remove());
      const most = highest[key](data.lengths[n]);
      frame(svg, most, [1, 8, 64, 512, 4096].map((d) => [x(d), String(d)]));
      data.scales.forEach((scale, s) => {
        const points = scale[key][n].map((value, i) => x(data.widths[i]).toFixed(1) + "," + y(value / most).toFixed(1));
        element(svg, "polyline", { class: "curve s" + s + (s === chosen ? " chosen" : ""), points: points.join(" ") });
      });
      const value = data.scales[chosen][key][n][at];
      element(svg, "circle", { class: "f" + chosen, cx: x(data.widths[at]), cy: y(value / most), r: 6 });
      return value;
    }

    function drawBars(at, n, chosen) {
      const svg = document.getElementById("explore-bars");
      svg.querySelectorAll(":scope > :not(title):not(desc)").forEach((old) => old.remove());
      const count = data.lengths[n];
      const scores = data.scores[at].slice(0, count).map((score) => score * data.scales[chosen].factors[at]);
      const weights = softmax(scores).map((weight, key) => [weight, key]);
      const shown = count <= 10 ? weights : weights.sort((a, b) => b[0] - a[0]).slice(0, 10);
      const step = (box.right - box.left) / Math.min(count, 10);
      frame(svg, 1, shown.map(([, key], i) => [box.left + step * (i + 0.5), String(key)]));
      shown.forEach(([weight], i) => {
        const bar = { class: "f" + chosen, x: box.left + step * (i + 0.15), width: step * 0.7, y: y(weight) };
        element(svg, "rect", { ...bar, height: Math.max(box.bottom - y(weight), 0.5) });
      });
      return Math.max(...weights.map(([weight]) => weight));
    }

    function draw() {
      const at = +width.value;
      const n = +length.value;
      const chosen = data.scales.findIndex((scale) => document.getElementById("explore-scale-" + scale.name).checked);
      const d = data.widths[at];
      const count = data.lengths[n];
      const bar = drawBars(at, n, chosen);
      const found = {};
      for (const key in highest) found[key] = drawCurves(key, at, n, chosen);
      document.getElementById("explore-width-value").textContent = d;
      document.getElementById("explore-length-value").textContent = count;
      width.setAttribute("aria-valuetext", d + " components");
      length.setAttribute("aria-valuetext", count + " keys");
      document.getElementById("explore-bars-note").textContent =
        count <= 10 ? "all " + count + " keys of one draw" : "the ten heaviest of " + count + " keys of one draw";
      numbers.textContent =
        "Standard deviation of a score: " + (Math.sqrt(d) * data.scales[chosen].factors[at]).toPrecision(3) +
        ". This draw's largest weight: " + bar.toFixed(3) + ". Exact means over all draws: entropy " +
        found.entropy.toFixed(3) + " nats of at most " + Math.log(count).toFixed(3) + ", largest weight " +
        found.weight.toFixed(3) + ", gradient tr J " + found.trace.toFixed(3) + ".";
    }

    document.getElementById("explorer").addEventListener("input", draw);
    draw();
  }

  function assumptions(details) {
    const withdrawals = JSON.parse(details.querySelector("script[type='application/json']").textContent);
    const outcome = details.querySelector(".outcome");
    const verdict = details.querySelector("summary .verdict");
    const proved = { text: verdict.textContent, css: verdict.className };
    const boxes = withdrawals.map((withdrawal) => {
      const item = details.querySelector("[data-assumption='" + withdrawal.label + "']");
      const label = document.createElement("label");
      const box = document.createElement("input");
      box.type = "checkbox";
      box.checked = true;
      label.append(box, ...item.childNodes);
      item.append(label);
      box.addEventListener("change", show);
      return box;
    });

    function show() {
      const missing = withdrawals.filter((_, i) => !boxes[i].checked);
      details.querySelectorAll("tr.broken").forEach((row) => row.classList.remove("broken"));
      outcome.textContent = missing.length ? "" : "All assumptions hold: every step is proved.";
      for (const withdrawal of missing) {
        const row = details.querySelector("tr[data-step='" + withdrawal.step + "']");
        if (row) row.classList.add("broken");
        const told = document.createElement("p");
        told.textContent = "Without " + withdrawal.label + ": " + withdrawal.words;
        outcome.append(told);
      }
      details.querySelectorAll(".decided").forEach((told) => (told.hidden = missing.length > 0));
      const refuted = missing.some((withdrawal) => withdrawal.truth === "FALSE");
      verdict.textContent = missing.length ? (refuted ? "FALSE" : "UNKNOWN") : proved.text;
      verdict.className = missing.length ? "verdict " + (refuted ? "fail" : "doubt") : proved.css;
    }
    show();
  }

  if (document.getElementById("explorer-data")) explorer();
  document.querySelectorAll("details.breakable").forEach(assumptions);
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((details) => (details.open = true));
  });
  addEventListener("afterprint", () => closed.forEach((details) => (details.open = false)));
})();
