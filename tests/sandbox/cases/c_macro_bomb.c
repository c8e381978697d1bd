#define A(x) x x
#define B(x) A(A(A(A(x))))
#define C(x) B(B(B(B(x))))
#define D(x) C(C(C(x)))
int main(void) { D(D(;)) return 0; }
