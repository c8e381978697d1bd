#include <bits/stdc++.h>
using namespace std;
int main() {
    ios::sync_with_stdio(false);
    cin.tie(nullptr);
    size_t n;
    cin >> n;
    vector<long> xs(n);
    for (auto &x : xs) cin >> x;
    long sum = 0;
    for (size_t i = 0; i + 1 < n; i++) sum += long(i + 1) * abs(xs.at(i) - xs.at(i + 1));
    try { xs.at(n); } catch (const out_of_range &) { cout << sum % 99991 << '\n'; }
}
