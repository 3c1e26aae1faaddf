# NumPy multiplies matrices, pandas sorts and groups a frame.

prepare() {
    cat > work.py <<'PYTHON'
import sys

import numpy, pandas

scale = int(sys.argv[1])
random = numpy.random.default_rng(7)
a = random.random((scale * 200, scale * 200))
print((a @ a).sum())
rows = scale * 100_000
frame = pandas.DataFrame({"key": random.integers(0, 1000, rows), "value": random.random(rows)})
print(frame.sort_values("value").head(3))
print(frame.groupby("key").value.sum().describe())
PYTHON
}

run() {
    $RUN /usr/bin/python3 work.py "$SCALE"
}
