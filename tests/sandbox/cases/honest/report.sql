-- the sum; in two steps
create view running as select sum(x) over (order by rowid) as so_far, rowid as at from numbers;
select so_far from running order by at desc limit 1;
