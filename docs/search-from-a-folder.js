// Where the site is opened from a folder, browsers start no worker, and the search needs one: its script runs in a frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const address = new URL(url, location.href).href;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.inside = new Promise((resolve) => {
        const begin = () => {
          document.body.append(this.frame);
          const inside = this.frame.contentWindow;
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = inside.document.createElement("script");
          script.src = address;
          script.onload = () => resolve(inside);
          inside.document.body.append(script);
        };
        if (document.body) begin();
        else addEventListener("DOMContentLoaded", begin);
      });
    }

    postMessage(data) {
      this.inside.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
