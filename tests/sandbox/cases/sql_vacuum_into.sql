vacuum into '/tmp/copy.db';
select sum(x) from numbers;
