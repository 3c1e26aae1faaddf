/* The agent ends while the program runs: memory is a SIGBUS, which the program dies of, as nothing of the library's
 * stands in the way. Calls fail before. */

#define _POSIX_C_SOURCE 200809L

#include <unistd.h>

#include "check.h"

int main(void)
{
    volatile char *memory;
    struct mind *mind = mind_attach("weather", NULL);

    CHECK(mind != NULL);
    memory = mind_map(mind, 4096, MIND_ACCESS_WRITE);
    CHECK(memory != NULL);
    /* The agent ends at this. */
    FAILS(mind_unlink_area(mind, "end"), -1, ENOTCONN, "agent has ended");
    puts("alone");
    fflush(stdout);
    return *memory;
}
