def bits(n):
    return [digit == "1" for digit in bin(n)[2:]]
