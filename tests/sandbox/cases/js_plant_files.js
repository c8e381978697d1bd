const fs = require('fs');
for (const name of ['/tmp/node_modules', '/tmp/.node_modules']) {
  try { fs.mkdirSync(name); fs.writeFileSync(`${name}/rlvr_seed.js`, 'module.exports = 1'); } catch {}
}
try { fs.writeFileSync('/tmp/rlvr_seed.js', 'module.exports = 1'); } catch {}
console.log('planted');
