const zigzag = (xs) => xs.slice(1).reduce((sum, x, i) => sum + (i + 1) * Math.abs(xs[i] - x), 0) % 99991;
