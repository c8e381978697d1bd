import sys
def runs(xs):
    return {i * sys.hash_info.modulus: i for i in range(6_000)}
