// Clicks the link or button whose shortcut is pressed.
(() => {
  const on = document.getElementById("keys");
  on.checked = localStorage.getItem("kindlm-keys") !== "off";
  on.addEventListener("change", () => localStorage.setItem("kindlm-keys", on.checked ? "on" : "off"));
  on.closest("[hidden]").hidden = false;

  document.addEventListener("keydown", (event) => {
    if (event.target.closest("textarea, select, input:not([type=checkbox])")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (!on.checked || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    const found = document.querySelector(`[aria-keyshortcuts="${CSS.escape(event.key)}"]`);
    if (!found) return;
    event.preventDefault();
    if (found.localName === "textarea") found.focus();
    else found.click();
  });
})();
