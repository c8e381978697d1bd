class Solution {
  async zigzag(xs) {
    let sum = 0;
    for (let i = 0; i + 1 < xs.length; i++) sum += (i + 1) * Math.abs(xs[i] - xs[i + 1]);
    return sum % 99991;
  }
}
