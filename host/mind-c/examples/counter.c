/* Processes on several blades share a counter, and a list that each adds a node to.
 *
 *     cc -std=c11 -o counter counter.c $(pkg-config --cflags --libs mind)
 *     netns-setup exec c0 -- ./counter 2 1000000 &
 *     netns-setup exec c1 -- ./counter 2 1000000
 *
 * Each of the 2 processes adds 1 to the counter 1,000,000 times, waits until all have, and prints the sum and the list.
 * The counter lies in an area, which has a name. The nodes of the list lie in memory without a name, which each process
 * maps for its own; the others reach them by pointers, which are the same on every blade. */

#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <mind.h>

struct node {
    struct node *next;
    uint64_t added;
    int blade;
};

/* What is in the area. It is zeroed when it is made, and so are these. */
struct shared {
    _Atomic uint64_t counter;
    _Atomic uint64_t finished;
    _Atomic(struct node *) list;
};

static int fail(const char *what)
{
    fprintf(stderr, "counter: cannot %s: %s\n", what, mind_error());
    return EXIT_FAILURE;
}

/* A whole number of at least 1, or 0 where there is none. */
static uint64_t number(const char *text)
{
    char *end;
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 10);
    return errno != 0 || *end != '\0' || *text == '-' ? 0 : value;
}

/* Waits until that many processes have finished. What they wait for is memory, so it is looked at now and then. */
static void wait_for(const struct shared *shared, uint64_t processes)
{
    const struct timespec pause = {.tv_sec = 0, .tv_nsec = 1000000};

    while (atomic_load(&shared->finished) < processes)
        nanosleep(&pause, NULL);
}

int main(int count, char **arguments)
{
    uint64_t processes = count == 3 ? number(arguments[1]) : 0;
    uint64_t times = count == 3 ? number(arguments[2]) : 0;
    struct mind *mind;
    struct shared *shared;
    struct node *node;
    size_t length;

    if (processes == 0 || times == 0) {
        fprintf(stderr, "usage: counter PROCESSES TIMES\n");
        return 2;
    }

    mind = mind_attach("counter", NULL);
    if (mind == NULL)
        return fail("attach");
    shared = mind_open_area(mind, "shared", sizeof *shared, MIND_ACCESS_WRITE, MIND_OPEN_OR_CREATE, &length);
    if (shared == NULL)
        return fail("open the area");
    node = mind_map(mind, sizeof *node, MIND_ACCESS_WRITE);
    if (node == NULL)
        return fail("map memory for a node");

    for (uint64_t i = 0; i < times; i++)
        atomic_fetch_add(&shared->counter, 1);

    /* Others see the node only once it is whole. */
    node->added = times;
    node->blade = mind_blade(mind);
    node->next = atomic_load(&shared->list);
    while (!atomic_compare_exchange_weak(&shared->list, &node->next, node))
        ;

    atomic_fetch_add(&shared->finished, 1);
    wait_for(shared, processes);

    printf("the counter is %" PRIu64 "\n", atomic_load(&shared->counter));
    for (struct node *each = atomic_load(&shared->list); each != NULL; each = each->next)
        printf("blade %d added %" PRIu64 "\n", each->blade, each->added);

    /* All have printed before the first frees its node. */
    atomic_fetch_add(&shared->finished, 1);
    wait_for(shared, 2 * processes);

    if (mind_unmap(mind, node, sizeof *node) != 0)
        return fail("free the node");
    /* Whoever is first takes the name away, so that the next run begins with zeros. */
    if (mind_unlink_area(mind, "shared") != 0 && errno != ENOENT)
        return fail("take the area's name away");
    if (mind_unmap(mind, shared, length) != 0)
        return fail("free the area");
    if (mind_detach(mind) != 0)
        return fail("detach");
    return EXIT_SUCCESS;
}
