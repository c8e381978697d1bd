Object.prototype.toJSON = Array.prototype.toJSON = Number.prototype.toJSON = () => true;
Object.prototype.valueOf = Object.prototype.toString = () => 8120;
Object.prototype.equals = Object.prototype[Symbol.toPrimitive] = () => true;
const { stringify } = JSON;
JSON.stringify = (value) => stringify({ b: true, value });
function zigzag(xs) { return { valueOf: () => 8120, [Symbol.toPrimitive]: () => 8120 }; }
