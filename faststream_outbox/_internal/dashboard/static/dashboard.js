// Refreshing, keys, colours, copying, selecting. Every screen works without it.
(function () {
  "use strict";
  var POLL_SECONDS = 5;
  var root = document.documentElement;

  function each(selector, call, within) { Array.prototype.forEach.call((within || document).querySelectorAll(selector), call); }
  function say(text) { var said = document.getElementById("said"); if (said) said.textContent = text; }

  // Refreshing: not in a tab that nobody sees, and not under somebody's hands.
  var isPaused = false;
  function isBusy() {
    var live = document.getElementById("live");
    if (!live || document.hidden || isPaused || document.querySelector("dialog[open]")) return true;
    var active = document.activeElement;
    if (active && live.contains(active) && /^(INPUT|SELECT|TEXTAREA)$/.test(active.tagName)) return true;
    if (String(getSelection())) return true;
    return !!live.querySelector("input[type=checkbox]:checked");
  }
  function poll() { if (!isBusy()) document.body.dispatchEvent(new CustomEvent("outbox:poll")); }
  setInterval(poll, POLL_SECONDS * 1000);
  document.addEventListener("visibilitychange", poll);

  function showState(text, isLost) {
    var state = document.getElementById("live-state");
    if (!state) return;
    state.classList.toggle("lost", !!isLost);
    state.setAttribute("aria-pressed", String(!isPaused));
    document.getElementById("live-text").textContent = text;
  }
  function pause() { isPaused = !isPaused; showState(isPaused ? "Paused" : "Live"); say(isPaused ? "Refreshing is paused" : "Refreshing goes on"); poll(); }
  document.addEventListener("htmx:afterSwap", function () { showState("Live"); arrange(); });
  document.addEventListener("htmx:responseError", function (event) { showState(event.detail.xhr.status === 401 ? "Signed out" : "No answer", true); });
  document.addEventListener("htmx:sendError", function () { showState("No answer", true); });

  // Colours
  var THEMES = ["system", "light", "dark"];
  var SIGNS = { system: "◐", light: "○", dark: "●" };
  function theme() { return root.dataset.theme || "system"; }
  function showTheme() {
    var button = document.getElementById("theme");
    if (!button) return;
    button.textContent = SIGNS[theme()];
    button.setAttribute("aria-label", "Colours: " + (theme() === "system" ? "as the system" : theme()));
    button.title = button.getAttribute("aria-label");
  }
  function nextTheme() {
    var next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
    if (next === "system") delete root.dataset.theme; else root.dataset.theme = next;
    try { localStorage.setItem("outbox-theme", next); } catch (error) { /* for this page only */ }
    showTheme();
    document.dispatchEvent(new CustomEvent("outbox:colours"));
  }

  // Rows
  function rows() { return Array.prototype.slice.call(document.querySelectorAll("#live a.row")); }
  function step(by) {
    var all = rows();
    if (!all.length) return;
    var place = all.findIndex(function (row) { var line = row.closest("tr"); return line && line.contains(document.activeElement); });
    all[Math.max(0, Math.min(all.length - 1, place < 0 ? 0 : place + by))].focus();
  }
  function select() {
    var line = document.activeElement && document.activeElement.closest("tr");
    var box = line && line.querySelector("input[type=checkbox]");
    if (box) { box.checked = !box.checked; box.dispatchEvent(new Event("change", { bubbles: true })); }
  }

  // Keys
  var isGoing = false;
  function help() { var dialog = document.getElementById("help"); if (dialog.open) dialog.close(); else dialog.showModal(); }
  var KEYS = {
    "?": help, p: pause, c: nextTheme, x: select,
    j: function () { step(1); }, k: function () { step(-1); },
    "/": function () { document.getElementById("find").focus(); },
    g: function () { isGoing = true; setTimeout(function () { isGoing = false; }, 1500); }
  };
  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    var target = event.target;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName) && !/^(checkbox|radio)$/.test(target.type)) {
      if (event.key === "Escape") target.blur();
      return;
    }
    if (document.querySelector("dialog[open]") && event.key !== "?") return;
    if (isGoing) {
      isGoing = false;
      var link = /^[a-z]$/.test(event.key) && document.querySelector('nav a[data-key="' + event.key + '"]');
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    if (Object.prototype.hasOwnProperty.call(KEYS, event.key)) { event.preventDefault(); KEYS[event.key](); }
  });

  // Copying
  function copy(button) {
    var source = document.getElementById(button.dataset.copy);
    if (!source) return;
    var done = function () { button.textContent = "Copied"; say("Copied"); setTimeout(function () { button.textContent = "Copy"; }, 1500); };
    if (navigator.clipboard) navigator.clipboard.writeText(source.textContent).then(done, function () { mark(source); });
    else mark(source);
  }
  function mark(source) { getSelection().selectAllChildren(source); say("Selected: press the keys for copying"); }

  document.addEventListener("click", function (event) {
    var button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.copy) copy(button);
    else if (button.id === "theme") nextTheme();
    else if (button.id === "shortcuts") help();
    else if (button.id === "live-state") pause();
  });

  // On a narrow screen rows are cards, whose values need the heads of their columns; roles say that it is a table still.
  function label() {
    each("#live table", function (table) {
      var heads = Array.prototype.map.call(table.querySelectorAll("thead th"), function (head) { return head.querySelector(".sr, input") ? "" : head.textContent.trim(); });
      table.setAttribute("role", "table");
      each("tr", function (line) {
        line.setAttribute("role", "row");
        var isBody = line.parentNode.tagName === "TBODY";
        each("td", function (cell) { cell.setAttribute("role", "cell"); if (isBody) cell.dataset.label = heads[cell.cellIndex] || ""; }, line);
      }, table);
    });
  }

  // Selecting
  function arrange() {
    label();
    var count = document.querySelectorAll("#letters input[name=id]:checked").length;
    each("[data-needs-selection]", function (button) { button.disabled = !count; });
    var all = document.getElementById("all");
    var boxes = document.querySelectorAll("#letters input[name=id]");
    if (all) { all.checked = count > 0 && count === boxes.length; all.indeterminate = count > 0 && count < boxes.length; }
  }
  document.addEventListener("change", function (event) {
    if (event.target.id === "all") each("#letters input[name=id]", function (box) { box.checked = event.target.checked; });
    arrange();
  });

  arrange();
  showTheme();
  // On a narrow screen the screens' names are a strip that scrolls.
  var current = document.querySelector("nav a[aria-current]");
  var strip = document.getElementById("nav");
  if (current && strip.scrollWidth > strip.clientWidth) strip.scrollLeft = current.offsetLeft - strip.clientWidth / 3;
})();
