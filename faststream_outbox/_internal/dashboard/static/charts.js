// The charts of the overview: the last hour, in the page's own colours.
(function () {
  "use strict";
  var REFRESH_SECONDS = 5;
  var HEIGHT = 150;
  var plots = [];

  function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim(); }
  function compact(value) {
    if (value >= 1e6) return +(value / 1e6).toFixed(1) + "M";
    if (value >= 1e4) return +(value / 1e3).toFixed(1) + "k";
    return value.toLocaleString("en");
  }
  function time(value) {
    if (value >= 172800) return +(value / 86400).toFixed(1) + " d";
    if (value >= 7200) return +(value / 3600).toFixed(1) + " h";
    if (value >= 60) return +(value / 60).toFixed(value < 600 ? 1 : 0) + " min";
    return (value < 10 ? +value.toFixed(1) : Math.round(value)) + " s";
  }
  var UNITS = { seconds: time, rate: function (value) { return value < 10 ? +value.toFixed(1) : compact(Math.round(value)); } };
  var COLOURS = { accent: "accent", soft: "series-soft", bad: "bad" };

  var STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];
  function clock(seconds, isLong) {
    var at = new Date(seconds * 1000);
    var text = ("0" + at.getHours()).slice(-2) + ":" + ("0" + at.getMinutes()).slice(-2);
    return isLong ? text + ":" + ("0" + at.getSeconds()).slice(-2) : text;
  }

  // What the lines are, and their values: where the pointer is, or else the last.
  function legend(figure, described) {
    var place = document.createElement("span");
    place.className = "legend";
    var at = document.createElement("span");
    at.className = "legend-at";
    place.appendChild(at);
    var values = described.map(function (each) {
      var item = document.createElement("span"), value = document.createElement("b");
      item.className = "legend-" + each[2];
      item.appendChild(document.createTextNode(each[1] + " "));
      item.appendChild(value);
      place.appendChild(item);
      return value;
    });
    figure.querySelector("figcaption").appendChild(place);
    return { place: place, at: at, values: values };
  }

  function make(figure, data) {
    var place = figure.querySelector(".plot");
    var show = UNITS[figure.dataset.unit] || compact;
    var described = figure.dataset.series.split(",").map(function (each) { return each.split(":"); });
    var keys = legend(figure, described);
    var font = "11px " + getComputedStyle(document.body).fontFamily;
    function read(plot) {
      var pointed = plot.cursor.idx, last = plot.data[0].length - 1;
      var index = pointed == null ? last : pointed;
      keys.at.textContent = pointed == null || last < 0 ? "" : clock(plot.data[0][index], true);
      keys.values.forEach(function (value, place) {
        var found = plot.data[place + 1][index];
        value.textContent = found == null ? "–" : show(found);
      });
    }
    var axis = { stroke: colour("muted"), font: font, ticks: { show: false } };
    var options = {
      width: place.clientWidth, height: HEIGHT, padding: [8, 18, 0, 0],
      cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
      scales: { x: { time: true }, y: { range: function (_, low, high) { return [0, Math.max(high * 1.12, 1)]; } } },
      legend: { show: false },
      hooks: { setCursor: [read], setData: [read], ready: [read] },
      axes: [
        Object.assign({ grid: { show: false }, size: 22, space: 64, values: function (_, values) { return values.map(function (value) { return clock(value); }); } }, axis),
        Object.assign({ grid: { stroke: colour("line"), width: 1 }, size: 52, space: 32, incrs: figure.dataset.unit === "seconds" ? STEPS : undefined,
          values: function (_, values) { return values.map(show); } }, axis)
      ],
      series: [{}].concat(described.map(function (each, place) {
        var stroke = colour(COLOURS[each[2]]);
        return { label: each[1], stroke: stroke, width: 1.6, fill: place === 0 && described.length === 1 ? stroke + "14" : undefined, points: { show: false } };
      }))
    };
    var plot = new uPlot(options, columns(described, data), place);
    return { plot: plot, described: described, keys: keys };
  }
  function columns(described, data) { return [data.at].concat(described.map(function (each) { return data[each[0]]; })); }

  var last = null;
  function draw(data) {
    last = data;
    var charts = document.getElementById("charts");
    if (!charts) return;
    if (!plots.length) {
      plots = Array.prototype.map.call(charts.querySelectorAll(".chart"), function (figure) { return make(figure, data); });
    } else {
      plots.forEach(function (each) { each.plot.setData(columns(each.described, data)); });
    }
    charts.dataset.points = data.at.length;
  }
  function redraw() {
    plots.forEach(function (each) { each.plot.destroy(); each.keys.place.remove(); });
    plots = [];
    if (last) draw(last);
  }
  function fetchHistory() {
    var charts = document.getElementById("charts");
    if (!charts || document.hidden) return;
    fetch(charts.dataset.history, { headers: { accept: "application/json" }, credentials: "same-origin" })
      .then(function (answer) { return answer.ok ? answer.json() : null; })
      .then(function (data) { if (data) draw(data); })
      .catch(function () { /* the page says that there is no answer */ });
  }
  var waiting = 0;
  window.addEventListener("resize", function () { clearTimeout(waiting); waiting = setTimeout(redraw, 150); });
  document.addEventListener("outbox:colours", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  fetchHistory();
  setInterval(fetchHistory, REFRESH_SECONDS * 1000);
})();
