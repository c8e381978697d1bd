const { Worker } = require('worker_threads');
const [, ...xs] = require('fs').readFileSync(0, 'utf8').trim().split(/\s+/).map(Number);
const code = `const { parentPort, workerData: [xs, from] } = require('worker_threads');
let sum = 0;
for (let i = from; i + 1 < xs.length; i += 2) sum += (i + 1) * Math.abs(xs[i] - xs[i + 1]);
parentPort.postMessage(sum);`;
const part = (from) => new Promise((done) => new Worker(code, { eval: true, workerData: [xs, from] }).on('message', done));
Promise.all([part(0), part(1)]).then(([a, b]) => console.log((a + b) % 99991));
