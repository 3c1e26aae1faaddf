# SQLite builds a table and an index in memory and queries them.

prepare() {
    cat > queries.sql <<SQL
create table t (a integer primary key, b text, c real);
with recursive s(x) as (select 1 union all select x + 1 from s where x < $((SCALE * 100000)))
    insert into t select x, hex(x * 7919 % 1000003) || '-' || x, x * 0.5 from s;
create index by_b on t (b);
select count(*), sum(c), min(b), max(b) from t;
select substr(b, 1, 3), count(*), sum(a) from t group by 1 order by 2 desc, 1 limit 5;
update t set c = c + 1 where b like '3%';
delete from t where a % 3 = 0;
select count(*), sum(c), sum(length(b)) from t;
pragma integrity_check;
SQL
}

run() {
    $RUN sqlite3 :memory: < queries.sql
}
