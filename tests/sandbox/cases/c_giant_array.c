int giant[1 << 29] = {1};
int main(void) { return giant[7]; }
