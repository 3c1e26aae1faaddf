# stress-ng writes and verifies memory in all the ways it knows.

prepare() {
    :
}

run() {
    $RUN stress-ng --vm 1 --vm-bytes $((SCALE * 16))M --vm-method all --verify --vm-ops $((SCALE * 30)) --quiet
    echo "no error"
}
