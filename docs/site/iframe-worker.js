// A browser starts no worker from a page that is read from the disk. There the script of the search runs in a hidden frame.
if (location.protocol === "file:") {
  const load = (inner, url) =>
    new Promise((loaded, failed) => {
      const script = inner.document.createElement("script");
      script.onload = loaded;
      script.onerror = () => failed(new Error(`${url} cannot be loaded`));
      script.src = url;
      inner.document.head.append(script);
    });

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const address = String(new URL(url, document.baseURI));
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.ready = new Promise((loaded, failed) => {
        this.frame.addEventListener("load", () => this.begin(address).then(loaded, failed), { once: true });
      });
      document.documentElement.append(this.frame);
    }

    // What a worker's script calls, and a frame has in another form or not at all.
    begin(address) {
      const inner = this.frame.contentWindow;
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inner.importScripts = async (...urls) => {
        for (const url of urls) await load(inner, url);
      };
      return load(inner, address);
    }

    async postMessage(data) {
      await this.ready;
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
  window.IFrameWorker = window.Worker; // by this name the script knows that it is in a frame
}
