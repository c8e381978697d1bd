#include <atomic>
#include <cstdlib>
#include <iostream>
#include <thread>
#include <vector>
int main() {
    long n;
    std::cin >> n;
    std::vector<long> xs(n);
    for (auto &x : xs) std::cin >> x;
    std::atomic<long> sum{0};
    std::vector<std::thread> all;
    for (long k = 0; k < 8; k++)
        all.emplace_back([&, k] { for (long i = k; i + 1 < n; i += 8) sum += (i + 1) * std::labs(xs[i] - xs[i + 1]); });
    for (auto &one : all) one.join();
    std::cout << sum % 99991 << std::endl;
}
