// The plotly library, embedded in the page.

let plotlyPromise = null;

// Unpack the library once, when the first chart is about to be drawn.
function plotly() {
  plotlyPromise ||= (async () => {
    const bytes = Uint8Array.from(atob($('plotly').textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
    const script = document.createElement('script');
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    return window.Plotly;
  })();
  return plotlyPromise;
}
