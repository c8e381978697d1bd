import sqlite3

with sqlite3.connect("/tmp/planted.db") as base:
    base.execute("create table answers(x)")
    base.execute("insert into answers values (1)")
print("planted")
