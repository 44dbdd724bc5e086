// Runs before the page is drawn, so that it is not drawn in the other colours first.
(function () {
  "use strict";
  var root = document.documentElement;
  root.classList.add("js");
  try {
    var theme = localStorage.getItem("outbox-theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch (error) { /* no storage: as the system */ }
})();
