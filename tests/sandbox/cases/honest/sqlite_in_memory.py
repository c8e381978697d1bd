import sqlite3, sys
xs = list(map(int, sys.stdin.read().split()))[1:]
db = sqlite3.connect(":memory:"); db.execute("create table t (i integer, x integer)")
db.executemany("insert into t values (?, ?)", enumerate(xs))
print(db.execute("select sum((a.i + 1) * abs(a.x - b.x)) % 99991 from t a join t b on b.i = a.i + 1").fetchone()[0])
