struct Again { ~Again() noexcept(false) { throw 1; } };
int main() { Again again; throw 2; }
