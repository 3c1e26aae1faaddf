/* Checks for tests in C: a failed one is named, and ends the program. */

#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mind.h>

#define CHECK(condition)                                                             \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s:%d: not so: %s (errno %d, \"%s\")\n", __FILE__,      \
                    __LINE__, #condition, errno, mind_error());                      \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

/* The call fails, returns `failure`, and says `number` and a text with `part`. */
#define FAILS(call, failure, number, part)                                           \
    do {                                                                             \
        errno = 0;                                                                   \
        CHECK((call) == (failure));                                                  \
        CHECK(errno == (number));                                                    \
        CHECK(strstr(mind_error(), part) != NULL);                                   \
    } while (0)

#endif
