template <int N> constexpr unsigned long spin() { unsigned long x = N; for (int i = 0; i < 200000; i++) x = x * 31 + i; return x; }
template <int N> struct Many { static constexpr unsigned long sum = spin<N>() + Many<N - 1>::sum; };
template <> struct Many<0> { static constexpr unsigned long sum = 0; };
constexpr unsigned long all = Many<800>::sum;
int main() { return all; }
