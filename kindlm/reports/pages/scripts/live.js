// Renews the content of a page while what it shows goes on; what is open stays open.
(() => {
  const EVERY_MS = 2000;
  const main = document.getElementById("content");
  let last = "";

  function open() {
    return new Set([...main.querySelectorAll("details[open][id]")].map((found) => found.id));
  }

  function show(text) {
    const kept = open();
    const active = main.contains(document.activeElement) ? document.activeElement : null;
    const focused = active && active.getAttribute("href");
    const written = [...main.querySelectorAll("input[name], select[name]")];
    // The server escapes all that is not its own, and the page's policy lets no other script run.
    const parsed = new DOMParser().parseFromString(text, "text/html");
    main.replaceChildren(...parsed.body.childNodes);
    for (const old of written) {
      const found = main.querySelector(`[name="${CSS.escape(old.name)}"]`);
      // The element itself stays, with what somebody is writing into it.
      if (found) found.replaceWith(old);
      if (old === active) old.focus({ preventScroll: true });
    }
    for (const id of kept) {
      const found = document.getElementById(id);
      if (found) found.open = true;
    }
    if (focused) {
      const again = main.querySelector(`a[href="${CSS.escape(focused)}"]`);
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
      // Whoever serves the page may be gone for a while; it is asked again.
    }
    if (main.querySelector("[data-live]")) setTimeout(renew, EVERY_MS);
  }

  setTimeout(renew, EVERY_MS);
})();
