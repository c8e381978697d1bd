'use strict';
// Runs a program in this node, or calls one of its functions and writes the value to descriptor 3:
// 8 bytes of length, then JSON with tags, as sandbox/wire.py reads it. Nothing here is trusted by
// that reader; what the program may change around here changes its own answer alone.
(() => {  // the program may use these names itself
  const fs = require('fs');
  const vm = require('vm');
  const Module = require('module');

  const NAME = '/tmp/solution.js';
  const RESULT = 3;
  const DEEPEST = 200;
  const { writeSync } = fs;
  const leave = process.reallyExit.bind(process);

  const words = process.argv.slice(1);
  const inFile = words[0].startsWith('/');
  const given = JSON.parse(inFile ? fs.readFileSync(words[0], 'utf8') : words.join(''));
  if (inFile) fs.unlinkSync(words[0]);
  process.argv = ['node', NAME];
  process.execArgv = [];
  process.stdout._handle?.setBlocking?.(true);  // or what is printed before process.exit() is lost
  for (const name of ['readFileSync', 'openSync', 'readFile']) {
    const before = fs[name];  // there is no /dev/stdin, which many programs read
    fs[name] = (path, ...more) =>
      path === '/dev/stdin' ? (name === 'openSync' ? 0 : before(0, ...more)) : before(path, ...more);
  }
  const main = new Module('.', null);
  main.filename = NAME;
  main.paths = [];
  process.mainModule = main;
  if (given.function) {
    call(given.function, revived(JSON.parse(given.args)));
  } else {
    main._compile(given.source, NAME);
  }

  async function call(name, args) {
    Object.assign(globalThis, { require: main.require.bind(main), module: main, exports: main.exports });
    vm.runInThisContext(given.source, { filename: NAME });
    send(plain(await found(name)(...args), 0));
  }

  // A function of the program, one it exports, or a method of its class Solution.
  function found(name) {
    const known = (what) => vm.runInThisContext(`typeof ${what} === 'undefined' ? undefined : ${what}`);
    const own = known(name) ?? main.exports?.[name];
    if (typeof own === 'function') return own;
    const Solution = known('Solution') ?? main.exports?.Solution;
    const solution = typeof Solution === 'function' ? new Solution() : undefined;
    if (typeof solution?.[name] === 'function') return (...args) => solution[name](...args);
    throw new ReferenceError(`the program defines no function ${name}`);
  }

  function send(value) {
    const text = JSON.stringify(value).replace(/[^\x00-\x7e]/g, escaped);
    const frame = Buffer.alloc(8 + text.length);
    frame.writeBigUInt64BE(BigInt(text.length));
    frame.write(text, 8, 'latin1');
    for (let at = 0; at < frame.length; ) at += writeSync(RESULT, frame, at);
    leave(0);
  }

  function escaped(unit) {
    return '\\u' + unit.charCodeAt(0).toString(16).padStart(4, '0');
  }

  function plain(value, depth) {
    if (depth > DEEPEST) throw new RangeError(`value is nested deeper than ${DEEPEST}`);
    if (value === null || value === undefined) return null;
    if (typeof value === 'boolean' || typeof value === 'string') return value;
    if (typeof value === 'number') return number(value);
    if (typeof value === 'bigint') return integer(value);
    const part = (one) => plain(one, depth + 1);
    if (Array.isArray(value)) return Array.from(value, part);
    if (value instanceof Map) return { d: Array.from(value).flat().map(part) };
    if (value instanceof Set) return { s: Array.from(value, part) };
    if (value instanceof Uint8Array) return { b: Buffer.from(value).toString('hex') };
    if (ArrayBuffer.isView(value) && Symbol.iterator in value) return Array.from(value, part);
    const kind = typeof value === 'object' ? Object.getPrototypeOf(value) : typeof value;
    if (kind === Object.prototype || kind === null) {
      return { d: Object.entries(value).flat(1).map(part) };
    }
    throw new TypeError(`a value of type ${kind?.constructor?.name ?? kind} is no plain data`);
  }

  function number(value) {
    if (Number.isSafeInteger(value)) return value;
    if (Number.isInteger(value)) return integer(BigInt(value));
    return Number.isNaN(value) ? { f: 'nan' } : Number.isFinite(value) ? value : { f: value > 0 ? 'inf' : '-inf' };
  }

  function integer(value) {
    return { i: (value < 0n ? '-0x' : '0x') + (value < 0n ? -value : value).toString(16) };
  }

  function revived(node) {
    if (Array.isArray(node)) return node.map(revived);
    if (node === null || typeof node !== 'object') return node;
    const [[tag, content]] = Object.entries(node);
    switch (tag) {
      case 'i':
        return content.startsWith('-') ? -BigInt(content.slice(1)) : BigInt(content);
      case 'f':
        return { nan: NaN, inf: Infinity, '-inf': -Infinity }[content];
      case 'b':
        return Uint8Array.from(Buffer.from(content, 'hex'));
      case 't':
        return content.map(revived);
      case 's':
      case 'z':
        return new Set(content.map(revived));
      case 'd': {
        const flat = content.map(revived);
        const pairs = flat.flatMap((key, at) => (at % 2 ? [] : [[key, flat[at + 1]]]));
        return pairs.every(([key]) => typeof key === 'string') ? Object.fromEntries(pairs) : new Map(pairs);
      }
      default:
        throw new TypeError(`an argument with tag ${tag} has no like in JavaScript`);
    }
  }
})();
