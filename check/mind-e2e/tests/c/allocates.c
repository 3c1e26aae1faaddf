/*
 * A program that knows nothing of MIND: it allocates and maps memory in all ways that the C library has, and checks that
 * it finds there what it left. Prints "all as it was left" and how much of it was in the window.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define UNIT (1UL << 19)
#define WINDOW 0x100000000000UL

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno);     \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

extern char **environ;

static int in_window(const void *address)
{
    return (uintptr_t)address - WINDOW < 16 * (1UL << 40);
}

/* Fills memory with what tells each word from any other of the same seed. */
static void fill(void *memory, size_t size, uint64_t seed)
{
    uint64_t *words = memory;
    for (size_t i = 0; i < size / 8; i++)
        words[i] = (seed << 40) + i;
}

static int holds(const void *memory, size_t size, uint64_t seed)
{
    const uint64_t *words = memory;
    for (size_t i = 0; i < size / 8; i++)
        if (words[i] != (seed << 40) + i)
            return 0;
    return 1;
}

static int is_zero(const void *memory, size_t size)
{
    const char *bytes = memory;
    for (size_t i = 0; i < size; i++)
        if (bytes[i])
            return 0;
    return 1;
}

/* Whether the kernel can read a byte there. */
static int is_readable(const void *address)
{
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    ssize_t written = write(pipes[1], address, 1);
    CHECK(written == 1 || errno == EFAULT);
    close(pipes[0]);
    close(pipes[1]);
    return written == 1;
}

static void small_blocks(void)
{
    enum { COUNT = 4000 };
    static uint64_t *blocks[COUNT];
    size_t inside = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++) {
            size_t size = 16 + (size_t)i % 200 * 16;
            blocks[i] = realloc(blocks[i], size + (size_t)round * 64);
            CHECK(blocks[i] && malloc_usable_size(blocks[i]) >= size);
            if (round)
                CHECK(holds(blocks[i], size, (uint64_t)i));
            fill(blocks[i], size, (uint64_t)i);
            inside += in_window(blocks[i]);
        }
    }
    CHECK(inside > COUNT);
    for (int i = 0; i < COUNT; i++)
        free(blocks[i]);
    uint64_t *zeroed = calloc(COUNT, 100);
    CHECK(zeroed && is_zero(zeroed, COUNT * 100));
    free(zeroed);
}

static void large_blocks(void)
{
    char *block = malloc(2 * UNIT);
    CHECK(in_window(block) && malloc_usable_size(block) >= 2 * UNIT);
    fill(block, 2 * UNIT, 1);
    block = realloc(block, 5 * UNIT);
    CHECK(in_window(block) && holds(block, 2 * UNIT, 1));
    block = realloc(block, 100);
    CHECK(holds(block, 96, 1));
    free(block);
    void *aligned;
    CHECK(posix_memalign(&aligned, UNIT, 3 * UNIT) == 0);
    CHECK((uintptr_t)aligned % UNIT == 0 && in_window(aligned));
    fill(aligned, 3 * UNIT, 2);
    CHECK(holds(aligned, 3 * UNIT, 2));
    free(aligned);
    CHECK(posix_memalign(&aligned, 24, 8) == EINVAL);
    char *zeroed = calloc(1, 3 * UNIT);
    CHECK(in_window(zeroed) && is_zero(zeroed, 3 * UNIT));
    free(zeroed);
    volatile size_t huge = SIZE_MAX / 2;
    CHECK(!malloc(huge) && errno == ENOMEM);
    CHECK(!calloc(huge, 8) && errno == ENOMEM);
}

static char *map(size_t size)
{
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

static void mappings(void)
{
    char *memory = map(4 * UNIT);
    CHECK(in_window(memory) && is_zero(memory, 4 * UNIT));
    fill(memory, 4 * UNIT, 3);
    /* Part of it goes, the rest stays. */
    CHECK(munmap(memory + UNIT, UNIT) == 0);
    CHECK(!is_readable(memory + UNIT) && !is_readable(memory + 2 * UNIT - 1));
    CHECK(holds(memory, UNIT, 3) && is_readable(memory + 2 * UNIT));
    /* Rights. */
    CHECK(mprotect(memory, PAGE, PROT_NONE) == 0);
    CHECK(!is_readable(memory) && is_readable(memory + PAGE));
    CHECK(mprotect(memory, PAGE, PROT_READ) == 0 && holds(memory, PAGE, 3));
    int zero = open("/dev/zero", O_RDONLY);
    CHECK(read(zero, memory, PAGE) == -1 && errno == EFAULT);
    CHECK(mprotect(memory, PAGE, PROT_READ | PROT_WRITE) == 0);
    CHECK(read(zero, memory, PAGE) == (ssize_t)PAGE && is_zero(memory, PAGE));
    close(zero);
    CHECK(mprotect(memory, 2 * UNIT, PROT_READ) == -1 && errno == ENOMEM);
    CHECK(mprotect(memory, PAGE, PROT_READ | PROT_EXEC) == -1 && errno == EACCES);
    /* What is not needed any more is zero when it is needed again. */
    CHECK(madvise(memory + 2 * UNIT, UNIT, MADV_DONTNEED) == 0);
    CHECK(is_zero(memory + 2 * UNIT, UNIT) && madvise(memory, PAGE, MADV_HUGEPAGE) == 0);
    CHECK(mlock(memory, PAGE) == 0 && msync(memory, PAGE, MS_SYNC) == 0);
    CHECK(mmap(memory, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == memory);
    CHECK(is_zero(memory, PAGE));
    CHECK(munmap(memory, 4 * UNIT) == 0);
    CHECK(!is_readable(memory) && !is_readable(memory + 3 * UNIT));
    /* It grows, and shrinks. */
    memory = map(UNIT);
    fill(memory, UNIT, 4);
    CHECK(mremap(memory, UNIT, 3 * UNIT, 0) == MAP_FAILED && errno == ENOMEM);
    char *moved = mremap(memory, UNIT, 3 * UNIT, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED && in_window(moved) && holds(moved, UNIT, 4));
    CHECK(is_zero(moved + UNIT, 2 * UNIT) && !is_readable(memory));
    CHECK(mremap(moved, 3 * UNIT, PAGE, 0) == moved && holds(moved, PAGE, 4));
    CHECK(!is_readable(moved + PAGE) && munmap(moved, PAGE) == 0);
    /* What is shared with children, and what is small, is not for the window. */
    char *shared = mmap(NULL, UNIT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(!in_window(shared) && munmap(shared, UNIT) == 0);
    memory = map(PAGE);
    CHECK(!in_window(memory) && munmap(memory, PAGE) == 0);
}

static void succeed(pid_t child)
{
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void handle(void)
{
    /* A handler of a child must find the child's memory. */
    free(malloc(100));
}

static void children(void)
{
    CHECK(pthread_atfork(NULL, NULL, handle) == 0);
    char *area = map(2 * UNIT), *hidden = map(UNIT);
    char *block = malloc(3 * UNIT), *small = malloc(1000);
    fill(area, 2 * UNIT, 5);
    fill(hidden, UNIT, 6);
    fill(block, 3 * UNIT, 7);
    fill(small, 1000, 8);
    CHECK(munmap(area + UNIT, PAGE) == 0 && mprotect(hidden, UNIT, PROT_NONE) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(holds(area, UNIT, 5) && holds(block, 3 * UNIT, 7) && holds(small, 1000, 8));
        CHECK(!is_readable(area + UNIT) && is_readable(area + UNIT + PAGE) && !is_readable(hidden));
        CHECK(mprotect(hidden, UNIT, PROT_READ) == 0 && holds(hidden, UNIT, 6));
        fill(area, UNIT, 9);
        /* Its own memory is where its parent's is not. */
        char *own = map(2 * UNIT);
        CHECK(in_window(own) && is_zero(own, 2 * UNIT));
        fill(own, 2 * UNIT, 10);
        free(block);
        free(small);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            CHECK(holds(own, 2 * UNIT, 10) && holds(area, UNIT, 9));
            large_blocks();
            CHECK(munmap(area, 2 * UNIT) == 0 && munmap(own, 2 * UNIT) == 0);
            exit(0);
        }
        succeed(grandchild);
        CHECK(holds(own, 2 * UNIT, 10) && munmap(own, 2 * UNIT) == 0);
        mappings();
        exit(0);
    }
    /* What the parent writes meanwhile is its own. */
    fill(block, 3 * UNIT, 11);
    succeed(child);
    CHECK(holds(area, UNIT, 5) && holds(block, 3 * UNIT, 11) && holds(small, 1000, 8));
    char *arguments[] = {"sh", "-c", "test $((6 * 7)) = 42", NULL};
    CHECK(posix_spawnp(&child, "sh", NULL, NULL, arguments, environ) == 0);
    succeed(child);
    CHECK(system("true") == 0);
    child = vfork();
    if (child == 0)
        _exit(holds(block, 3 * UNIT, 11) ? 0 : 1);
    succeed(child);
    free(block);
    free(small);
    CHECK(munmap(area, 2 * UNIT) == 0 && munmap(hidden, UNIT) == 0);
}

static void *work(void *argument)
{
    uint64_t seed = (uintptr_t)argument;
    for (size_t round = 0; round < 300; round++) {
        size_t size = 64 + (round * 7919 + seed * 104729) % 40000 / 8 * 8;
        char *block = round % 50 == 49 ? map(UNIT) : malloc(size);
        size = round % 50 == 49 ? UNIT : size;
        CHECK(block);
        fill(block, size, seed);
        sched_yield();
        CHECK(holds(block, size, seed));
        if (round % 50 == 49)
            CHECK(munmap(block, size) == 0);
        else
            free(block);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)(i + 20)) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(int argc, char **argv)
{
    small_blocks();
    large_blocks();
    mappings();
    children();
    threads();
    printf("all as it was left\n");
    fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "stay") == 0) {
        char *memory = map(8 * UNIT);
        fill(memory, 8 * UNIT, 12);
        printf("stays\n");
        fflush(stdout);
        for (;;)
            CHECK(holds(memory, 8 * UNIT, 12));
    }
    return 0;
}
