const lines = [];
require('readline').createInterface({ input: process.stdin }).on('line', (line) => lines.push(line)).on('close', () => {
  const xs = lines[1].split(' ').map(Number);
  console.log(xs.slice(1).reduce((sum, x, i) => sum + (i + 1) * Math.abs(xs[i] - x), 0) % 99991);
});
