import math
def root(x):
    return math.sqrt(x)
