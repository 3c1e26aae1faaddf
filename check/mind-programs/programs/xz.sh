# xz compresses with its largest tables and a dictionary of 64 MiB; what it writes is unpacked and compared.

prepare() {
    awk -v lines=$((SCALE * 20000)) \
        'BEGIN { srand(7); for (i = 0; i < lines; i++) printf "%d %x in line %d\n", rand() * 1000, rand() * 4096, i }' \
        > input
}

run() {
    $RUN xz -9 --threads=1 --stdout input > input.xz
    xz --decompress --stdout input.xz | cmp - input
    sha256sum < input.xz
}
