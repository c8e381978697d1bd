attach 'file:/usr/lib/os-release?mode=ro&immutable=1' as other;
select sum(x) from numbers;
