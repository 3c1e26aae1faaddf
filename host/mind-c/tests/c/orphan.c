/* Attaches, forks a child, says its number and ends. The child stays until it is killed, or two minutes. The argument
 * is the domain. */

#define _POSIX_C_SOURCE 200809L

#include <unistd.h>

#include "check.h"

int main(int count, char **arguments)
{
    pid_t child;

    CHECK(count == 2);
    CHECK(mind_attach(arguments[1], NULL) != NULL);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(0);
        close(1);
        close(2);
        sleep(120);
        _exit(0);
    }
    printf("%ld\n", (long)child);
    return 0;
}
