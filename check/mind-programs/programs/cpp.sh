# A program in C++: threads that fill maps, strings and vectors, all by the operator new.

prepare() {
    cat > work.cpp <<'CPP'
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

static unsigned long work(unsigned long seed, int count) {
    std::map<unsigned long, std::string> ordered;
    std::unordered_map<std::string, std::unique_ptr<unsigned long>> hashed;
    for (int i = 0; i < count; i++) {
        seed = seed * 6364136223846793005UL + 1442695040888963407UL;
        std::string text = std::to_string(seed);
        hashed[text] = std::make_unique<unsigned long>(seed >> 7);
        ordered[seed] = std::move(text);
        if (i % 5 == 4) ordered.erase(ordered.begin());
    }
    unsigned long sum = 0;
    for (const auto &[key, text] : ordered) sum = sum * 31 + (key ^ *hashed.at(text));
    return sum;
}

int main(int, char **arguments) {
    const int count = atoi(arguments[1]) * 20000;
    std::vector<unsigned long> sums(4);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < sums.size(); i++)
        threads.emplace_back([&sums, i, count] { sums[i] = work(i + 1, count); });
    for (auto &thread : threads) thread.join();
    for (unsigned long sum : sums) std::printf("%lu\n", sum);
}
CPP
    g++ -std=c++17 -O2 -pthread work.cpp -o work
}

run() {
    $RUN ./work "$SCALE"
}
