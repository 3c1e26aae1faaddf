/* Bad arguments, and no agent: every call says so, and nothing else happens. The argument is a folder without a
 * socket in it. */

#define _POSIX_C_SOURCE 200809L

#include <pthread.h>

#include "check.h"

static void *other_thread(void *argument)
{
    (void)argument;
    CHECK(strcmp(mind_error(), "") == 0);
    FAILS(mind_unlink_area(NULL, "a"), -1, EINVAL, "mind is a null pointer");
    return NULL;
}

/* A struct of a later version, with choices that this one does not have. */
struct later {
    struct mind_options options;
    long choice;
};

static void bad_options(void)
{
    struct mind_options options = MIND_OPTIONS_INIT;
    struct later later;

    options.on_loss = 3;
    FAILS(mind_attach("d", &options), NULL, EINVAL, "3 is no value of enum mind_on_loss");
    options.on_loss = -1;
    FAILS(mind_attach("d", &options), NULL, EINVAL, "-1 is no value of enum mind_on_loss");
    options.on_loss = MIND_ON_LOSS_FAIL;
    options.size = 0;
    FAILS(mind_attach("d", &options), NULL, EINVAL, "the size of struct mind_options is 0; set it to sizeof");
    options.size = sizeof options - 1;
    FAILS(mind_attach("d", &options), NULL, EINVAL, "set it to sizeof (struct mind_options)");
    options.size = (size_t)-1;
    FAILS(mind_attach("d", &options), NULL, EINVAL, "set it to sizeof (struct mind_options)");
    options.size = sizeof options;
    options.reserved = 1;
    FAILS(mind_attach("d", &options), NULL, E2BIG, "choices that this library does not know");
    options.reserved = 0;
    options.socket = "\xff\xfe";
    FAILS(mind_attach("d", &options), NULL, EINVAL, "socket is not UTF-8");

    memset(&later, 0, sizeof later);
    later.options.size = sizeof later;
    later.options.socket = "/nonexistent/socket";
    later.choice = 1;
    FAILS(mind_attach("d", (struct mind_options *)&later), NULL, E2BIG, "install the version of libmind");
    /* It is as good as this version's while it chooses nothing that is new. */
    later.choice = 0;
    FAILS(mind_attach("d", (struct mind_options *)&later), NULL, ENOENT, "/nonexistent/socket");
}

static void bad_arguments(void)
{
    char place[64];
    struct mind *wrong = (struct mind *)place;
    char *long_name = malloc(100001);

    CHECK(long_name != NULL);
    memset(long_name, 'x', 100000);
    long_name[100000] = 0;

    FAILS(mind_attach(NULL, NULL), NULL, EINVAL, "domain is a null pointer");
    FAILS(mind_attach("\xff\xfe", NULL), NULL, EINVAL, "domain is not UTF-8");
    FAILS(mind_attach(long_name, NULL), NULL, ENAMETOOLONG, "domain has more than");
    bad_options();

    FAILS(mind_detach(NULL), -1, EINVAL, "mind is a null pointer");
    FAILS(mind_blade(NULL), -1, EINVAL, "mind is a null pointer");
    FAILS(mind_domain(NULL), 0, EINVAL, "mind is a null pointer");
    FAILS(mind_map(NULL, 4096, MIND_ACCESS_WRITE), NULL, EINVAL, "mind is a null pointer");
    FAILS(mind_map(NULL, 4096, 2), NULL, EINVAL, "2 is no value of enum mind_access");
    FAILS(mind_unmap(NULL, place, 1), -1, EINVAL, "mind is a null pointer");
    FAILS(mind_protect(NULL, place, 1, MIND_ACCESS_READ), -1, EINVAL, "mind is a null pointer");
    FAILS(mind_protect(NULL, place, 1, 99), -1, EINVAL, "99 is no value of enum mind_access");
    FAILS(mind_sync(NULL, place, 1), -1, EINVAL, "mind is a null pointer");
    FAILS(mind_open_area(NULL, NULL, 1, MIND_ACCESS_WRITE, MIND_OPEN_NEW, NULL), NULL, EINVAL,
          "name is a null pointer");
    FAILS(mind_open_area(NULL, "\xc3(", 1, MIND_ACCESS_WRITE, MIND_OPEN_NEW, NULL), NULL, EINVAL,
          "name is not UTF-8");
    FAILS(mind_open_area(NULL, "a", 1, MIND_ACCESS_WRITE, 3, NULL), NULL, EINVAL,
          "3 is no value of enum mind_open");
    FAILS(mind_open_area(NULL, "a", 1, MIND_ACCESS_WRITE, MIND_OPEN_NEW, NULL), NULL, EINVAL,
          "mind is a null pointer");
    FAILS(mind_unlink_area(NULL, NULL), -1, EINVAL, "name is a null pointer");
    FAILS(mind_unlink_area(NULL, long_name), -1, ENAMETOOLONG, "name has more than");

    /* Pointers that are no struct mind are known before they are followed. */
    FAILS(mind_map(wrong, 4096, MIND_ACCESS_WRITE), NULL, EINVAL, "not the one that mind_attach returned");
    FAILS(mind_detach((struct mind *)8), -1, EINVAL, "not the one that mind_attach returned");
    free(long_name);
}

static void no_agent(const char *folder)
{
    char path[4096];

    CHECK(unsetenv("MIND_BLADE_SOCKET") == 0);
    FAILS(mind_attach("d", NULL), NULL, ENOTCONN, "MIND_BLADE_SOCKET is not set");

    snprintf(path, sizeof path, "%s/nothing", folder);
    CHECK(setenv("MIND_BLADE_SOCKET", path, 1) == 0);
    FAILS(mind_attach("d", NULL), NULL, ENOENT, path);
    CHECK(strstr(mind_error(), "No such file") != NULL);

    /* A socket on which no process listens any more. */
    snprintf(path, sizeof path, "%s/left", folder);
    CHECK(setenv("MIND_BLADE_SOCKET", path, 1) == 0);
    FAILS(mind_attach("d", NULL), NULL, ECONNREFUSED, path);
    /* It may be tried as often as one likes. */
    FAILS(mind_attach("d", NULL), NULL, ECONNREFUSED, path);

    memset(path, 'y', sizeof path - 1);
    path[sizeof path - 1] = 0;
    CHECK(setenv("MIND_BLADE_SOCKET", path, 1) == 0);
    FAILS(mind_attach("d", NULL), NULL, ENAMETOOLONG, "cannot connect");
}

int main(int count, char **arguments)
{
    pthread_t thread;

    CHECK(count == 2);
    CHECK(strcmp(mind_error(), "") == 0);
    CHECK(strcmp(mind_version(), MIND_VERSION) == 0);
    bad_arguments();
    no_agent(arguments[1]);

    /* Another thread has errors of its own. */
    FAILS(mind_blade(NULL), -1, EINVAL, "mind is a null pointer");
    CHECK(pthread_create(&thread, NULL, other_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}
