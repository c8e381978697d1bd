select cast(sum(x) as text) from numbers;
