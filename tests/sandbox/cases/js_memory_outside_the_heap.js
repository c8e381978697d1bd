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

let got = 0;
const kept = [];
for (const make of [
  () => Buffer.alloc(20 << 20, 1),
  () => new Uint8Array(new SharedArrayBuffer(20 << 20)).fill(1),
  () => new Uint8Array(new WebAssembly.Memory({ initial: 320, maximum: 320, shared: true }).buffer).fill(1),
  () => new Uint8Array(new WebAssembly.Memory({ initial: 320 }).buffer).fill(1),
]) {
  try { for (let i = 0; i < 20; i++) { kept.push(make()); got += 20; } } catch {}
}
verdict(got >= 400);
