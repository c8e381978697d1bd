const words = require('fs').readFileSync('/dev/stdin', 'utf8').split(/\s+/).map(Number);
let sum = 0;
for (let i = 1; i < words[0]; i++) sum += i * Math.abs(words[i] - words[i + 1]);
console.log(sum % 99991);
