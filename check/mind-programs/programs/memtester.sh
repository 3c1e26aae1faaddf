# memtester writes and reads patterns, and locks the memory.

prepare() {
    :
}

run() {
    $RUN memtester $((SCALE * 4))M 1 > log
    echo "no error"
}
