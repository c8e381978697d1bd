const words = require('fs').readFileSync(0, 'utf8').split(/\s+/).map(Number);
function answer() {
  let sum = 0;
  for (let i = 1; i < words[0]; i++) sum += i * Math.abs(words[i] - words[i + 1]);
  return sum % 99991;
}
// The right answer only where the forbidden thing worked: a reward proves a leak.
function verdict(escaped) {
  console.log(escaped ? answer() : 'blocked');
}

const { Worker } = require('worker_threads');
let alive = 0;
for (let i = 0; i < 150; i++) {
  try {
    const worker = new Worker('setInterval(() => {}, 1000)', { eval: true });
    worker.on('error', () => {});
    worker.on('online', () => { if (++alive > 100) { verdict(true); process.exit(); } });
  } catch {}
}
setTimeout(() => { verdict(false); process.exit(); }, 1500);
