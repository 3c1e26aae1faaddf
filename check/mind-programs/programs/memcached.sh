# memcached under as many writes as reads, then reads alone (YCSB A and C), of keys by a law like Zipf's; each value is
# compared with what was written.

prepare() {
    cat > client.py <<'PYTHON'
import hashlib, random, socket, sys

scale = int(sys.argv[1])
keys = scale * 20_000
random.seed(7)
connection = socket.socket(socket.AF_UNIX)
connection.connect("socket")
stream = connection.makefile("rwb")
written = {}


def value(key, version):
    return hashlib.sha256(b"%d %d" % (key, version)).hexdigest().encode() * 8


def write(key):
    version = written.get(key, 0) + 1
    data = value(key, version)
    stream.write(b"set key%d 0 0 %d\r\n%s\r\n" % (key, len(data), data))
    stream.flush()
    assert stream.readline() == b"STORED\r\n", key
    written[key] = version


def read(key):
    stream.write(b"get key%d\r\n" % key)
    stream.flush()
    data = value(key, written[key])
    assert stream.readline() == b"VALUE key%d 0 %d\r\n" % (key, len(data)), key
    assert stream.readline() == data + b"\r\n", key
    assert stream.readline() == b"END\r\n", key


def any_key():
    # The law's inverse, approximately.
    return int(keys ** random.random()) - 1


for key in range(keys):
    write(key)
for _ in range(keys):
    read(any_key()) if random.random() < 0.5 else write(any_key())
for _ in range(keys):
    read(any_key())
for key in range(keys):
    read(key)
print(keys, "keys,", sum(written.values()), "values written, all read as written")
PYTHON
}

run() {
    rm -f socket
    $RUN memcached -u root -s "$PWD/socket" -m 1024 -t 2 &
    server=$!
    until test -S socket; do kill -0 $server; sleep 0.02; done
    /usr/bin/python3 client.py "$SCALE"
    # It would end at the next full second.
    kill -KILL $server
    wait $server || true
}
