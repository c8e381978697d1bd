select sum(x) from numbers
