// An extension of JupyterLab without a build: a module container as JupyterLab loads it, with one plugin. It tells the
// server when somebody types or clicks, asks it every half minute when the notebook ends, and says so in time.
(() => {
  const SECONDS_BETWEEN = 30;
  const clock = seconds => new Date(seconds * 1000).toLocaleTimeString([], {hour: "2-digit", minute: "2-digit"});
  const sentences = {
    idle: end => `Nobody uses this notebook. It ends at ${clock(end)}, and its GPUs go to others.`,
    limit: end => `The time limit of this notebook's job is ${clock(end)}. Save what you need.`,
  };
  const plugin = {
    id: "plumbline-notebook:ends",
    autoStart: true,
    activate: app => {
      const settings = app.serviceManager.serverSettings;
      const url = settings.baseUrl + "api/plumbline/ends";
      const said = {};
      const ask = (method = "GET") => fetch(url, {
        method,
        credentials: "same-origin",
        headers: {"X-XSRFToken": (document.cookie.match(/\b_xsrf=([^;]*)/) || [])[1] || ""},
      });
      const keep = async () => {
        await ask("POST");
        delete said.idle;
      };
      let used = false;
      for (const event of ["keydown", "pointerdown", "wheel"]) {
        document.addEventListener(event, () => { used = true; }, {capture: true, passive: true});
      }
      const look = async () => {
        if (used) {
          used = false;
          await ask("POST").catch(() => null);
        }
        const answer = await ask().catch(() => null);
        if (!answer || !answer.ok) return;
        const ends = await answer.json();
        for (const kind of Object.keys(said)) if (!ends.warn.includes(kind)) delete said[kind];
        for (const kind of ends.warn) {
          if (said[kind]) continue;
          said[kind] = true;
          app.commands.execute("apputils:notify", {
            message: sentences[kind](ends[kind]),
            type: "warning",
            options: {
              autoClose: false,
              actions: kind === "idle"
                ? [{label: "Keep it", commandId: "plumbline-notebook:keep", displayType: "accent"}] : [],
            },
          });
        }
      };
      app.commands.addCommand("plumbline-notebook:keep", {label: "Keep this notebook", execute: keep});
      app.restored.then(look);
      setInterval(look, SECONDS_BETWEEN * 1000);
    },
  };
  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB["plumbline-notebook"] = {
    init: () => {},
    get: () => Promise.resolve(() => ({default: plugin, __esModule: true})),
  };
})();
