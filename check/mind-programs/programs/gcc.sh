# GCC compiles a large file, optimized; the object is compared.

prepare() {
    awk -v functions=$((SCALE * 120)) 'BEGIN {
        print "#include <stdio.h>\nstruct point { double x, y, z; };"
        for (i = 0; i < functions; i++) {
            printf "double f%d(struct point *p, int n) { double s = %d; for (int i = 0; i < n; i++) {", i, i
            printf " s += p[i].x * p[(i * %d) %% n].y; if (s > %d) s -= p[i].z; switch (i %% 5) {", i + 3, i * 100
            printf " case 0: s *= 1.5; break; case 1: s /= p[i].x + %d; break; case 2: p[i].y = s; break;", i + 1
            print " default: s += i; } } return s; }"
        }
        print "int main(void) { struct point p[9] = {{1, 2, 3}}; double s = 0;"
        for (i = 0; i < functions; i++) printf "s += f%d(p, 9);\n", i
        print "printf(\"%g\\n\", s); return 0; }"
    }' > large.c
}

run() {
    $RUN gcc -O2 -c large.c -o large.o
    gcc large.o -o large && ./large
    sha256sum < large.o
}
