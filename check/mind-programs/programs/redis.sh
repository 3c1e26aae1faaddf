# Redis takes keys, gives each back, saves them in a child (fork), and another server reads the file: the same digest.

prepare() {
    awk -v keys=$((SCALE * 40000)) 'BEGIN { srand(7); for (i = 0; i < keys; i++)
        printf "SET key:%d value:%d:%0200d\r\n", i, rand() * 1000000, i }' > sets
    awk -v keys=$((SCALE * 40000)) 'BEGIN { for (i = keys - 1; i >= 0; i--) printf "GET key:%d\n", i }' > gets
    ln -s "$(command -v redis-check-rdb)" redis-server
}

# Starts a server; the words before its name are $1. Debian's redis-tools have the server's file under another name, and
# start no service.
start() {
    $1 ./redis-server --port 0 --unixsocket "$PWD/socket" --save '' --dir "$PWD" --enable-debug-command yes > log 2>&1 &
    server=$!
    until redis-cli -s socket ping 2> /dev/null | grep -q PONG; do
        kill -0 $server || { cat log >&2; exit 1; }
        sleep 0.02
    done
}

end() {
    redis-cli -s socket shutdown nosave
    wait $server
}

run() {
    rm -f dump.rdb
    start "$RUN"
    redis-cli -s socket --pipe < sets | grep replies
    redis-cli -s socket < gets | sha256sum
    digest=$(redis-cli -s socket debug digest)
    redis-cli -s socket bgsave > /dev/null
    until redis-cli -s socket info persistence | grep -q 'rdb_bgsave_in_progress:0'; do sleep 0.02; done
    redis-cli -s socket info persistence | grep rdb_last_bgsave_status
    end
    start ""
    test "$digest" = "$(redis-cli -s socket debug digest)"
    redis-cli -s socket dbsize
    end
    echo "$digest"
}
