// The search runs in a Worker, which browsers refuse to pages that are files. There, this runs its script in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      address = new URL(address, location.href);
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      document.documentElement.append(frame);
      const inside = frame.contentWindow;
      const load = (source) => new Promise((done, failed) => {
        const script = frame.contentDocument.createElement("script");
        Object.assign(script, { src: new URL(source, address), onload: done, onerror: failed });
        frame.contentDocument.documentElement.append(script);
      });
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
      this.inside = inside;
      this.loaded = load(address);
    }
    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })));
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
