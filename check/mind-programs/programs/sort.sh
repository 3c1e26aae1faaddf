# coreutils' sort, with a buffer that holds all lines: they are compared and moved in memory.

prepare() {
    awk -v lines=$((SCALE * 100000)) \
        'BEGIN { srand(7); for (i = 0; i < lines; i++) printf "%.15f line %d\n", rand(), i }' > lines
}

run() {
    $RUN sort --buffer-size=1G --parallel=2 lines | sha256sum
}
