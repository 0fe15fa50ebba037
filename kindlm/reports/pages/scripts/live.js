// Updates the content of a page while its run is in progress; the focus stays.
(() => {
  const EVERY_MS = 2000;
  const main = document.getElementById("content");
  let last = "";

  // Returns a selector for the focused link, and its position among the links that match.
  function placeOf(element) {
    const href = element && element.getAttribute("href");
    if (!href) return null;
    const selector = `a[href="${CSS.escape(href)}"]`;
    return { selector, place: [...main.querySelectorAll(selector)].indexOf(element) };
  }

  function show(text) {
    const active = main.contains(document.activeElement) ? document.activeElement : null;
    const focused = placeOf(active);
    const written = [...main.querySelectorAll("input[name], select[name]")];
    // The server escapes untrusted text, and the page's policy forbids other scripts.
    const parsed = new DOMParser().parseFromString(text, "text/html");
    document.title = parsed.title;
    main.replaceChildren(...parsed.body.childNodes);
    for (const old of written) {
      const found = main.querySelector(`[name="${CSS.escape(old.name)}"]`);
      // The element stays, with what the user is typing.
      if (found) found.replaceWith(old);
      if (old === active) old.focus({ preventScroll: true });
    }
    if (focused) {
      const alike = main.querySelectorAll(focused.selector);
      const again = alike[focused.place] || alike[0];
      if (again) again.focus({ preventScroll: true });
    }
  }

  async function renew() {
    try {
      const address = new URL(location.href);
      address.searchParams.set("part", "1");
      const answer = await fetch(address, { cache: "no-store" });
      if (answer.ok) {
        const text = await answer.text();
        if (text !== last) show(text);
        last = text;
      }
    } catch {
      // The server may be unreachable for a while.
    }
    if (main.querySelector("[data-live]")) setTimeout(renew, EVERY_MS);
  }

  setTimeout(renew, EVERY_MS);
})();
