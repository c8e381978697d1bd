const fs = require('fs'), { Worker } = require('worker_threads');
const { once } = require('events');
(async () => {
  const [n, ...xs] = fs.readFileSync(0, 'utf8').split(/\s+/).filter(Boolean).map(Number);
  let numbers = xs;
  try {
    fs.mkdirSync('/tmp/d', { recursive: true });
    fs.writeFileSync('/tmp/d/a', JSON.stringify(xs));
    fs.copyFileSync('/tmp/d/a', '/tmp/d/b'); fs.renameSync('/tmp/d/b', '/tmp/d/c');
    numbers = JSON.parse(await fs.promises.readFile('/tmp/d/c', 'utf8'));
    fs.rmSync('/tmp/d', { recursive: true });
  } catch (error) { if (!['EACCES', 'EROFS', 'EPERM', 'ENOENT'].includes(error.code)) throw error; }
  await new Promise((done) => setTimeout(done, 5));
  const code = `const { parentPort } = require('worker_threads');
    parentPort.once('message', (v) => parentPort.postMessage(
      v.slice(1).reduce((sum, x, i) => sum + (i + 1) * Math.abs(v[i] - x), 0) % 99991));`;
  const worker = new Worker(code, { eval: true });
  worker.postMessage(numbers);
  const [answer] = await once(worker, 'message');
  await worker.terminate();
  process.stdout.write(answer + '\n');
})();
