/* Adds a number to a word, leaves the domain, says so, and stays until its input ends. The arguments: domain, area,
 * number. */

#include <stdatomic.h>

#include "check.h"

int main(int count, char **arguments)
{
    struct mind *mind;
    _Atomic uint64_t *word;

    CHECK(count == 4);
    mind = mind_attach(arguments[1], NULL);
    CHECK(mind != NULL);
    word = mind_open_area(mind, arguments[2], 4096, MIND_ACCESS_WRITE, MIND_OPEN_OR_CREATE, NULL);
    CHECK(word != NULL);
    atomic_fetch_add(word, strtoull(arguments[3], NULL, 10));
    CHECK(mind_detach(mind) == 0);
    FAILS(mind_sync(mind, (void *)word, 8), -1, ENOTCONN, "has detached");
    puts("left");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
