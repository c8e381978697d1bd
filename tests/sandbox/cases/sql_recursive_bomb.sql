with recursive c(n) as (select 1 union all select n + 1 from c) select sum(n) from c;
