// The plotly library, loaded from the server.

let plotlyPromise = null;

function plotly() {
  plotlyPromise ||= new Promise((done, failed) => {
    document.head.append(el('script', { src: '/plotly.js', onload: () => done(window.Plotly), onerror: failed }));
  });
  return plotlyPromise;
}
