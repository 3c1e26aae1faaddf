# Python sorts, fills a dictionary and makes many small objects.

prepare() {
    cat > work.py <<'PYTHON'
import hashlib, random, sys

scale = int(sys.argv[1])
random.seed(7)
numbers = sorted(random.random() for _ in range(scale * 100_000))
words = {number: "word %d" % (number * 7919 % 1_000_003) for number in range(scale * 50_000)}
nested = [[index, [index, str(index)]] for index in range(scale * 20_000)]
print(hashlib.sha256(repr(numbers).encode()).hexdigest())
print(hashlib.sha256("".join(sorted(words.values())).encode()).hexdigest())
print(sum(inner[1][0] + len(inner[1][1]) for inner in nested))
PYTHON
}

run() {
    $RUN /usr/bin/python3 work.py "$SCALE"
}
