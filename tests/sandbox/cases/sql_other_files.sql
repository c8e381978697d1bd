attach database '/usr/lib/answers.db' as other;
pragma main.journal_mode = wal;
pragma temp_store = 1;
create temp table copies as select 42 as x;
select load_extension('/usr/lib/answers.so');
select x from copies;
