# scikit-learn fits a logistic regression on its handwritten digits.

prepare() {
    cat > work.py <<'PYTHON'
import sys

import numpy
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

digits = load_digits()
images = numpy.tile(digits.data, (int(sys.argv[1]), 1))
labels = numpy.tile(digits.target, int(sys.argv[1]))
model = LogisticRegression(max_iter=30, tol=0).fit(images[:-500], labels[:-500])
print(model.score(images[-500:], labels[-500:]), numpy.round(model.coef_, 6).sum())
PYTHON
}

run() {
    $RUN /usr/bin/python3 -W ignore work.py "$SCALE"
}
