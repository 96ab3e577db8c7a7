// Lets the search run without a server: browsers refuse workers for pages opened from a folder, so an iframe takes
// their place. After https://github.com/squidfunk/iframe-worker, copyright (c) 2020-2022 Martin Donath, MIT licence.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super()
    this.iframe = document.createElement("iframe")
    this.iframe.hidden = true
    document.body.appendChild(this.iframe)
    const inner = this.iframe.contentWindow
    const importScripts = (...urls) =>
      urls.reduce(
        (before, url) =>
          before.then(
            () =>
              new Promise((resolve) => {
                const script = document.createElement("script")
                script.src = url
                script.onload = resolve
                document.body.appendChild(script)
              }),
          ),
        Promise.resolve(),
      )
    inner.document.open()
    inner.document.write(
      `<html><body><script>postMessage=(data)=>parent.postMessage(data,"*");importScripts=${importScripts}</script>` +
        `<script src="${url}"></script></body></html>`,
    )
    inner.document.close()
    window.addEventListener("message", (event) => {
      if (event.source !== inner) return
      this.dispatchEvent(new MessageEvent("message", { data: event.data }))
      if (this.onmessage) this.onmessage(event)
    })
    this.ready = new Promise((resolve, reject) => {
      inner.onload = resolve
      inner.onerror = reject
    })
  }

  terminate() {
    this.iframe.remove()
  }

  postMessage(data) {
    this.ready.then(() => this.iframe.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
  }
}

if (location.protocol === "file:") window.Worker = IFrameWorker
