attach '/tmp/other.db' as other;
select sum(x) from numbers;
