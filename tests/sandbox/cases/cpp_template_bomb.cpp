template <int N, long M> struct Tree { static constexpr long sum = Tree<N - 1, 2 * M>::sum + Tree<N - 1, 2 * M + 1>::sum; };
template <long M> struct Tree<0, M> { static constexpr long sum = M; };
int main() { return Tree<40, 1>::sum; }
