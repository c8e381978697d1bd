create table blobs(b);
insert into blobs values (randomblob(300000000)), (randomblob(300000000));
select sum(x) from numbers;
