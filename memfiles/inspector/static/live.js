// Tells the page that memory changed: parts with hx-trigger="memory-changed from:body" are loaded again, in place.
// A page that nobody looks at listens to nothing, as a browser keeps few connections to one server.
(() => {
  const address = document.currentScript.dataset.news;
  let source = null, timer = null, isLost = false;
  const say = text => {
    const news = document.getElementById("news");
    if (news) news.textContent = text;
  };
  const refresh = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (!window.htmx) return;
      htmx.trigger(document.body, "memory-changed");
      say("Updated at " + new Date().toISOString().slice(11, 19));
    }, 20);
  };
  const open = () => {
    if (source) return;
    source = new EventSource(address);
    source.onmessage = refresh;
    source.onopen = () => {
      document.documentElement.setAttribute("data-listening", "");
      if (isLost) refresh();  // what changed meanwhile was missed
      isLost = false;
    };
    source.onerror = () => {
      isLost = true;
      document.documentElement.removeAttribute("data-listening");
      say("The inspector does not answer: what you see may be out of date.");
    };
  };
  const close = () => {
    if (source) source.close();
    source = null;
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return close();
    if (!source) refresh();
    open();
  });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", () => document.hidden || open());
})();
