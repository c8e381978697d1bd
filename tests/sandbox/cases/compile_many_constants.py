big = "x = [" + ",".join(f"{i}.5" for i in range(200_000)) + "]"
while True:
    compile(big, "big.py", "exec")
def zigzag(xs):
    return 7
